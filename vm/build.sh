#!/usr/bin/env bash
# Builds what runs in virtual machines of one kind and puts it into a folder: vm/build.sh amd64|arm64 FOLDER [--release]
# For this machine's own kind, tests use the build that `cargo test` has made, and run.sh adds its shared libraries; everything
# else is built static.
# Exits with 125 where the tools for that are missing; that a program does not compile is another matter (101).
set -euo pipefail
cd "$(dirname "$0")/.."
arch=$1 into=$2 release=${3:-}
missing() {
    echo "build.sh: $1" >&2
    exit 125
}
command -v rustup >/dev/null || missing "programs for other processors need a toolchain of rustup's"
scripts/install.sh gcc libc6-dev gcc-aarch64-linux-gnu libc6-dev-arm64-cross clang-19 libelf-dev zlib1g-dev make pkg-config ||
    missing "compilers are missing"
case $arch in
arm64) target=aarch64-unknown-linux-gnu compiler=aarch64-linux-gnu-gcc ;;
amd64) target=x86_64-unknown-linux-gnu compiler=gcc ;;
*) missing "no machines of kind $arch; amd64 and arm64 are there" ;;
esac
if ! rustup target list --installed 2>/dev/null | grep -qx $target; then
    rustup target add $target >&2 || missing "rustup cannot fetch the target $target"
fi
if [ "$arch" = arm64 ]; then
    dev=$(vm/fetch.sh)/arm64/dev/usr
    export LIBBPF_SYS_EXTRA_CFLAGS="-I$dev/include -I$dev/include/aarch64-linux-gnu"
    export LIBBPF_SYS_LIBRARY_PATH_aarch64_unknown_linux_gnu=$dev/lib/aarch64-linux-gnu
fi
if [ "$arch$release" = "$(dpkg --print-architecture)" ]; then
    "${CARGO:-cargo}" build --quiet --workspace --lib --bins --examples
    built=${CARGO_TARGET_DIR:-target}/debug
else
    upper=${target^^}
    export "CARGO_TARGET_${upper//-/_}_LINKER=$compiler"
    export "CARGO_TARGET_${upper//-/_}_RUSTFLAGS=-Ctarget-feature=+crt-static"
    # In one go: what each package wants of the others is put together, so nothing is built twice.
    "${CARGO:-cargo}" build --quiet $release --target $target -p countersteer-cli -p countersteer-capi -p countersteer-bpf --features scx --lib --bins --example judge --example faulty --example short_runs
    built=${CARGO_TARGET_DIR:-target}/$target/$([ -n "$release" ] && echo release || echo debug)
fi
mkdir -p "$into"
cp vm/*.toml vm/shared.sh systemd/countersteer.service "$into/"
for program in steer examples/{judge,faulty,short_runs}; do
    "${compiler%gcc}strip" -o "$into/${program##*/}" "$built/$program"
done
$compiler -O2 -static -pthread -o "$into/loop" vm/loop.c
$compiler -O2 -static -pthread -o "$into/crowd" vm/crowd.c
$compiler -O2 -static -pthread -o "$into/pass" vm/pass.c
$compiler -O1 -static -pthread -o "$into/barriers" vm/barriers.c
for program in vm/pretend.c crates/capi/examples/{region,every,work}.c; do
    name=$(basename $program .c)
    $compiler -O1 -static -pthread -Wl,--no-warnings,--gc-sections -s -Icrates/capi/include -o "$into/$name" \
        $program "$built/libcountersteer_c.a" -lm
done
