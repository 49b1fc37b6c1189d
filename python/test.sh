#!/usr/bin/env bash
# Tests the Python package as it is installed: a wheel, unoptimised but for the simulator, and a fresh environment without network.
# python/test.sh [PYTEST ARGUMENTS]
# What the tests import is fetched once into a folder below target/. Skipped where there is no Python from 3.11 on, or no network.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/skip.sh python
packages=(numpy pyarrow 'pytest>=8' distributed nbclient nbformat ipykernel altair polars duckdb pandas mypy)
scripts/install.sh python3 python3-venv || skip "python3 with venv is missing"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || skip "Python is older than 3.11"
place=$(realpath -m "${CARGO_TARGET_DIR:-target}")/python
install() {
    "$1/bin/pip" install --quiet --disable-pip-version-check --no-index --find-links "$place/packages" --find-links "$place/wheel" "${@:2}"
}
mkdir -p "$place/wheel"
python/wheel.sh "$place/wheel" || {
    [ $? = 4 ] && skip "maturin cannot be fetched"
    exit 1
}
rm -rf "$place/venv"
python3 -m venv "$place/venv"
install "$place/venv" countersteer "${packages[@]}" 2>/dev/null || {
    mkdir -p "$place/packages"
    "$place/venv/bin/pip" download --quiet --disable-pip-version-check --dest "$place/packages" "${packages[@]}" || skip "packages cannot be fetched"
    install "$place/venv" countersteer "${packages[@]}"
}
# The wheel is for every Python from 3.11 on; those that are here import it.
for python in python3.11 python3.12 python3.13 python3.14; do
    "$python" -c '' 2>/dev/null || continue
    "$python" -m venv --without-pip "$place/other"
    PYTHONPATH=$(echo "$place"/venv/lib/python3*/site-packages/countersteer/..) "$place/other/bin/python" -c \
        'import sys, countersteer; assert "linux" in [p[0] for p in countersteer.policies()]; print("imports in Python", *sys.version_info[:2])'
    rm -rf "$place/other"
done
PYTHONDONTWRITEBYTECODE=1 "$place/venv/bin/python" -m pytest -q -rs -p no:cacheprovider --doctest-modules --pyargs "$@" python/tests countersteer
rm -rf "$place/venv"
