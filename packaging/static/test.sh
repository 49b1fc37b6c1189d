#!/usr/bin/env bash
# Tests an archive of make.sh in a root that holds nothing else but a program to record: test.sh ARCHIVE
set -euo pipefail
archive=$(realpath "$1")
PATH=$PATH:/usr/sbin
CHROOT=$(command -v chroot)
export CHROOT PROC=yes
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root/proc" "$root/dev" "$root/tmp"
tar -xf "$archive" -C "$root" --strip-components 1
printf '%s\n' '#include <stdio.h>' 'int main(void)' '{' '    volatile unsigned sum = 0;' \
    '    for (unsigned i = 0; i < 400000000; i++)' '        sum += i * i;' '    return printf("%u\n", sum) < 0;' '}' >"$work/burn.c"
gcc -O1 -static -o "$root/burn" "$work/burn.c"

# A user namespace gives the right to change the root, where it is permitted.
inside=(unshare --mount --pid --fork)
[ "$(id -u)" = 0 ] || inside+=(--user --map-root-user)
"${inside[@]}" true 2>/dev/null || { echo "skipped: static archive: namespaces are not permitted here"; exit 0; }
# Runs a command in the root; PROC=yes with /proc and /dev, as containers have them.
within() {
    # shellcheck disable=SC2016
    "${inside[@]}" bash -c '[ "$PROC" = no ] || { mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev"; }; exec env -i PATH=/bin "$CHROOT" "$0" "$@"' "$root" "$@"
}
job() {
    local want=$1 name=$2 status=0
    shift 2
    within "$@" >"$work/out" 2>"$work/err" || status=$?
    if [ $status = 0 ] && grep -q "$want" "$work/out"; then
        echo "test static::$name ... ok"
    else
        echo "test static::$name ... FAILED (exit code $status)"
        tail -n 5 "$work/out" "$work/err"
        failed=1
    fi
}
failed=0
PROC=no job '"verdict"' compare_in_an_empty_root /bin/steer compare -M core2-quad -w shared-caches -P linux,joint --seeds 1 --json
job core2-quad machines /bin/steer machine list
job '"verdict"' try /bin/steer try -M i9-12900k-8p8e --seeds 1 --duration 3s --json -- /burn
job '"instructions"' profile /bin/steer profile -o /dev/stdout --max-instructions 50M -- /burn
job 'task' stat /bin/steer stat --json -- /burn
exit $failed
