#!/usr/bin/env bash
# Tests the Python package against the extension that `cargo test` has built: python/test.sh [PYTEST ARGUMENTS]
# What the tests import is installed into an environment below target/. Skipped where there is no Python from 3.11 on, or no network.
set -euo pipefail
cd "$(dirname "$0")/.."
skip() {
    echo "python: skipped: $1"
    [ -z "${COUNTERSTEER_SKIPPED:-}" ] || echo "skipped: python: $1" >>"$COUNTERSTEER_SKIPPED"
    exit 0
}
scripts/install.sh python3 python3-venv || skip "python3 with venv is missing"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || skip "Python is older than 3.11"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
place=$target/python
"${CARGO:-cargo}" build --quiet --workspace --lib --bins --examples
mkdir -p "$place"
rm -rf "$place/countersteer"
cp -r python/countersteer "$place/"
cp "$target/debug/lib_countersteer.so" "$place/countersteer/_countersteer.abi3.so"
[ -x "$place/venv/bin/python" ] || python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check numpy pyarrow 'pytest>=8' distributed nbclient nbformat ipykernel || skip "packages cannot be fetched"
PYTHONPATH=$place PYTHONDONTWRITEBYTECODE=1 "$place/venv/bin/python" -m pytest -q -p no:cacheprovider --doctest-modules "$@" python/tests "$place/countersteer"
