#!/usr/bin/env bash
# Records and judges a program in small roots of other systems: scripts/test-distributions.sh FOLDER [ROOT...]
# FOLDER holds a built `steer` and `libcountersteer_capture.so`. Each root is made once with debootstrap, in a cache folder outside the
# tree. It gets steer, its recorder and the recorder's QEMU, and what the Debian package depends on. `slim` is a root with Python and the
# newest wheel of target/wheels or target/python/wheel instead, as `python:slim` images are; without NumPy, which the command does not need
# and no index is there for. `deb-bookworm` and `deb-trixie` install the newest package of target/debian. A root that cannot be made is
# skipped, and the reason is printed.
set -euo pipefail
cd "$(dirname "$0")/.."
built=$1
shift
[ $# -gt 0 ] || set -- bookworm trixie slim deb-bookworm deb-trixie
. scripts/skip.sh distributions
unshare --mount true 2>/dev/null || skip "chroot and mount need root, with its capabilities"
scripts/install.sh debootstrap >&2 || skip "debootstrap cannot be installed"
archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m 1 -E '/debian/?$') ||
    skip "no Debian archive among this machine's package sources"
engine=$(scripts/recorder-engine.sh) || skip "the recorder's QEMU cannot be built (see above)"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/countersteer/roots
mkdir -p "$cache"
target=${CARGO_TARGET_DIR:-target}
wheel=$(ls -t "$target"/{wheels,python/wheel}/countersteer-*.whl 2>/dev/null | head -1 || true)
package=$(ls -t "$target"/debian/countersteer_*.deb 2>/dev/null | head -1 || true)
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
    trap "umount '$into/proc'" EXIT
    chroot "$into" /bin/bash -euo pipefail -c '
        cd /tmp && rm -rf job && mkdir job && cd job
        seq 10000 >numbers
        steer profile -o gzip.json -- gzip -9 -k -c numbers >/dev/null
        grep -q "\"instructions\"" gzip.json
        steer profile show gzip.json >shown
        steer try --machine i9-12900k-8p8e --seeds 1 --json -- gzip -9 -k -c numbers >verdict.json
        grep -q "\"verdict\"" verdict.json'
}

# Installs what was built, a wheel or a package into the root of a name, and does the job there.
judge() {
    local into=$cache/$1
    case $1 in
    slim)
        cp "$wheel" "$into/tmp/"
        chroot "$into" /bin/bash -c "rm -rf /opt/c && python3 -m venv /opt/c && ln -sf /opt/c/bin/steer /usr/bin/steer &&
            /opt/c/bin/pip install --quiet --no-index --no-deps /tmp/${wheel##*/}"
        ;;
    deb-*)
        cp "$package" "$into/tmp/countersteer.deb"
        chroot "$into" dpkg --install /tmp/countersteer.deb >&2
        ;;
    *)
        install -D -t "$into/usr/bin" "$built/steer"
        install -D -t "$into/usr/lib/countersteer" "$built/libcountersteer_capture.so" "$engine"/qemu-*64
        ;;
    esac
    job "$into"
}

for name in "$@"; do
    packages=libelf1,zlib1g,libgcc-s1,gzip
    case $name in
    slim)
        [ -n "$wheel" ] || { skipped "slim: no wheel in $target/wheels (make wheel)"; continue; }
        release=bookworm packages=python3-minimal,python3-venv,gzip
        ;;
    deb-*)
        [ -n "$package" ] || { skipped "$name: no package in $target/debian (make deb)"; continue; }
        release=${name#deb-}
        ;;
    *) release=$name ;;
    esac
    [ "$release" != trixie ] || packages=${packages/libelf1/libelf1t64}
    root "$name" "$release" "$packages" || { skipped "$name: debootstrap failed, see above"; continue; }
    # In a list or a condition `set -e` would not hold inside.
    set +e
    (set -e; judge "$name")
    status=$?
    set -e
    if [ $status = 0 ]; then echo "test distributions::$name ... ok"; else
        echo "test distributions::$name ... FAILED (exit code $status)"
        failed=1
    fi
done
exit $failed
