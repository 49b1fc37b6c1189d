#!/usr/bin/env bash
# Records and judges a program in small roots of other systems: scripts/test-distributions.sh FOLDER [ROOT...]
# FOLDER holds a built `steer` and `libcountersteer_capture.so`. Each root is made once with debootstrap, in a cache folder outside the
# tree. It gets steer, its recorder and the recorder's QEMU, and what the Debian package depends on. `slim` is a root with Python and the
# wheel of target/wheels instead, as `python:slim` images are.
set -euo pipefail
cd "$(dirname "$0")/.."
built=$1
shift
[ $# -gt 0 ] || set -- bookworm trixie slim
[ "$(id -u)" = 0 ] || { echo "skipped: distributions: chroot needs root"; exit 0; }
scripts/install.sh debootstrap >&2
archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m 1 -E '/debian/?$') ||
    { echo "skipped: distributions: no Debian archive among this machine's package sources"; exit 0; }
engine=$(scripts/recorder-engine.sh)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/countersteer/roots
mkdir -p "$cache"
wheel=$(ls -t target/wheels/countersteer-*.whl 2>/dev/null | head -1 || true)
failed=0

# Makes the root of a release with packages besides, unless it is there.
root() {
    local into=$cache/$1
    [ -e "$into/.complete" ] && return
    rm -rf "$into"
    echo "test-distributions.sh: making $into" >&2
    debootstrap --variant=minbase --include="$3" "$2" "$into" "$archive" >"$cache/$1.log" 2>&1 ||
        { tail -n 5 "$cache/$1.log" >&2; return 1; }
    touch "$into/.complete"
}

# Runs a job inside a root: a program of the root is recorded, shown, and judged on a hybrid machine. /proc is there as in any container.
job() {
    local into=$1
    mount --bind /proc "$into/proc"
    trap "umount '$into/proc'" RETURN
    chroot "$into" /bin/bash -euo pipefail -c '
        cd /tmp && rm -rf job && mkdir job && cd job
        seq 40000 >numbers
        steer profile -o gzip.json -- gzip -9 -k -c numbers >/dev/null
        grep -q "\"instructions\"" gzip.json
        steer profile show gzip.json >shown
        steer try --machine i9-12900k-8p8e --seeds 1 --json -- gzip -9 -k -c numbers >verdict.json
        grep -q "\"verdict\"" verdict.json'
}

for name in "$@"; do
    status=0
    case $name in
    slim)
        [ -n "$wheel" ] || { echo "skipped: distributions: slim: no wheel in target/wheels (make wheel)"; continue; }
        { root slim bookworm python3-minimal,python3-venv,gzip && cp "$wheel" "$cache/slim/tmp/" &&
            chroot "$cache/slim" /bin/bash -c "rm -rf /opt/c && python3 -m venv /opt/c && /opt/c/bin/pip install --quiet --no-index /tmp/${wheel##*/} && ln -sf /opt/c/bin/steer /usr/bin/steer" &&
            job "$cache/slim"; } || status=$?
        ;;
    *)
        packages=libelf1,zlib1g,libgcc-s1,gzip
        [ "$name" = bookworm ] || packages=${packages/libelf1/libelf1t64}
        { root "$name" "$name" "$packages" && install -D -t "$cache/$name/usr/bin" "$built/steer" &&
            install -D -t "$cache/$name/usr/lib/countersteer" "$built/libcountersteer_capture.so" "$engine"/qemu-*64 &&
            job "$cache/$name"; } || status=$?
        ;;
    esac
    if [ $status = 0 ]; then echo "test distributions::$name ... ok"; else
        echo "test distributions::$name ... FAILED (exit code $status)"
        failed=1
    fi
done
exit $failed
