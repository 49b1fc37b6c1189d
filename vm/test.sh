#!/usr/bin/env bash
# Tests that need a real kernel or a PMU: vm/test.sh [CASE...]
# Every folder of vm/cases/ is a case: `machine` holds options of vm/run.sh, `command` runs in the virtual machine, and
# `check.py` gets what it printed and judges. The program under test is built static for the machine's processor.
set -euo pipefail
cd "$(dirname "$0")/.."
skip() {
    echo "vm: skipped: $1"
    exit 0
}
command -v rustup >/dev/null || skip "programs for other processors need a toolchain of rustup's"
scripts/install.sh gcc libc6-dev gcc-aarch64-linux-gnu libc6-dev-arm64-cross clang-19 libelf-dev zlib1g-dev make pkg-config python3 || skip "cross compilers are missing"
cache=$(vm/fetch.sh) || skip "QEMU and kernels cannot be fetched (see above)"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# What runs in machines of one kind: built once.
build() {
    local arch=$1 target compiler
    [ ! -d "$scratch/$arch" ] || return 0
    case $arch in
    arm64) target=aarch64-unknown-linux-gnu compiler=aarch64-linux-gnu-gcc ;;
    amd64) target=x86_64-unknown-linux-gnu compiler=gcc ;;
    esac
    mkdir "$scratch/$arch"
    if ! rustup target list --installed 2>/dev/null | grep -qx $target; then
        rustup target add $target >&2 || skip "rustup cannot fetch the target $target"
    fi
    local upper=${target^^}
    local environment=("CARGO_TARGET_${upper//-/_}_LINKER=$compiler")
    environment+=("CARGO_TARGET_${upper//-/_}_RUSTFLAGS=-Ctarget-feature=+crt-static")
    if [ "$arch" = arm64 ]; then
        local dev=$cache/arm64/dev/usr
        environment+=("LIBBPF_SYS_EXTRA_CFLAGS=-I$dev/include -I$dev/include/aarch64-linux-gnu")
        environment+=("LIBBPF_SYS_LIBRARY_PATH_aarch64_unknown_linux_gnu=$dev/lib/aarch64-linux-gnu")
    fi
    env "${environment[@]}" "${CARGO:-cargo}" build --quiet --target $target -p countersteer-cli
    env "${environment[@]}" "${CARGO:-cargo}" rustc --quiet --target $target -p countersteer --lib --crate-type staticlib
    env "${environment[@]}" "${CARGO:-cargo}" build --quiet --target $target -p countersteer-scx --example judge
    cp vm/*.toml "$scratch/$arch/"
    for program in steer examples/judge; do
        "${compiler%gcc}strip" -o "$scratch/$arch/${program##*/}" "${CARGO_TARGET_DIR:-target}/$target/debug/$program"
    done
    $compiler -O2 -static -pthread -o "$scratch/$arch/loop" vm/loop.c
    $compiler -O2 -static -pthread -o "$scratch/$arch/crowd" vm/crowd.c
    for example in region every; do
        $compiler -O1 -static -pthread -Wl,--no-warnings -s -Icrates/capi/include -o "$scratch/$arch/$example" \
            crates/capi/examples/$example.c "${CARGO_TARGET_DIR:-target}/$target/debug/libcountersteer.a" -lm
    done
}

passed=0 failed=0
for case in "${@:-vm/cases/*}"; do
    for folder in $case; do
        read -r -a options <"$folder/machine"
        arch=amd64
        [ "${options[0]}" != --arch ] || arch=${options[1]}
        build "$arch"
        status=0
        vm/run.sh "${options[@]}" "$scratch/$arch/"* -- "$(cat "$folder/command")" \
            >"$scratch/output" || status=$?
        if [ $status = 0 ] && python3 "$folder/check.py" <"$scratch/output"; then
            echo "vm: $folder ... ok"
            passed=$((passed + 1))
        else
            echo "vm: $folder ... FAILED (exit code $status); it printed:"
            tail -n 300 "$scratch/output"
            failed=$((failed + 1))
        fi
    done
done
echo "vm: result: $passed passed; $failed failed"
[ $failed = 0 ]
