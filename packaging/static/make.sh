#!/usr/bin/env bash
# Makes an archive that runs on any Linux of this architecture, unpacked wherever one likes: make.sh INTO [PROFILE]
# `steer` is linked to nothing. The recorder's QEMU and its plugin have the C library of the machine that builds beside them.
# BPF=no leaves the engine inside the kernel out, and with it the need for clang and libelf.
set -euo pipefail
into=$(realpath -m "$1") profile=${2:-release}
cd "$(dirname "$0")/../.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}") cargo=${CARGO:-cargo}
arch=$(uname -m)
triple=$arch-unknown-linux-gnu
name=countersteer-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)-$arch
engine=$(scripts/recorder-engine.sh)

# Only what is linked into `steer` is static: with a target named, neither macros nor build scripts get these flags.
flags="-C target-feature=+crt-static" features=()
if [ "${BPF:-}" != no ]; then
    features=(--features static)
    # Build scripts link it, too.
    LIBBPF_SYS_LIBRARY_PATH=$(dirname "$(gcc -print-file-name=libelf.a)")
    export LIBBPF_SYS_LIBRARY_PATH
    # What libelf itself needs depends on the release.
    for library in $(pkg-config --static --libs-only-l libelf); do
        [ "$library" = -lelf ] || flags+=" -C link-arg=$library"
    done
fi
# Rust's own linker leaves a call to a function that is not there in the start of such a program.
RUSTFLAGS="$flags" scripts/build-progress "$cargo" rustc --profile "$profile" --target "$triple" -p countersteer-cli "${features[@]}" --bin steer -- \
    -C link-arg=-fuse-ld=bfd
scripts/build-progress "$cargo" build --profile "$profile" -p countersteer-capture
built=$target/$triple/$profile/steer
! readelf -d "$built" | grep -q NEEDED || { echo "static: $built needs libraries of the system" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
top=$work/$name
# The service file has the paths of /usr/local, where the archive may be unpacked.
make --no-print-directory install-steer DESTDIR="$work/stage" PREFIX=/usr/local STEER="$built" \
    PLUGIN="$target/$profile/libcountersteer_capture.so" ENGINE="$engine" >/dev/null
mv "$work/stage/usr/local" "$top"
strip "$top/bin/steer" "$top/lib/countersteer/libcountersteer_capture.so"
install -m 644 LICENSE-* "$top/"

# The C library that the recorder needs, as this machine has it.
library=$top/lib/countersteer/libc
mkdir "$library"
needed() { ldd "$@" | sed -n 's/^.* => \([^ ]*\) .*$/\1/p' | sort -u; }
needed "$engine/qemu-$arch" "$top/lib/countersteer/libcountersteer_capture.so" | while read -r file; do
    install -m 644 "$(realpath "$file")" "$library/${file##*/}"
done
linker=$(readelf -l "$engine/qemu-$arch" | sed -n 's/.*interpreter: \(.*\)\]/\1/p')
install -m 755 "$(realpath "$linker")" "$library/ld.so"
{
    echo "The files in lib/countersteer/libc are the GNU C library and GCC's library, unchanged, of these Debian packages, under the licences"
    echo "that /usr/share/doc/PACKAGE/copyright of Debian gives (LGPL 2.1 or later; GPL 3 with the GCC runtime library exception):"
    dpkg-query -W -f '${Package} ${Version}, source ${source:Package} ${source:Version}\n' libc6 libgcc-s1
} >"$top/share/doc/countersteer/libc-source.txt"

mkdir -p "$into"
tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -czf "$work/archive" "$name"
mv "$work/archive" "$into/$name.tar.gz"
echo "$into/$name.tar.gz"
