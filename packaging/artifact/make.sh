#!/usr/bin/env bash
# Packs what a reviewer needs to check the claims offline: make.sh WHEEL OUT.tar.gz
set -euo pipefail
cd "$(dirname "$0")/../.."
wheel=$(realpath "$1")
out=$(realpath -m "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
top=$work/countersteer-artifact
mkdir -p "$top/wheels" "$top/records" "$(dirname "$out")"
cp "$wheel" "$top/wheels/"
cp -r profiles packaging/artifact/{claims.toml,check.py,run.sh} "$top/"
python3 -m venv "$work/venv"
"$work/venv/bin/pip" download --quiet --disable-pip-version-check --dest "$top/wheels" "$wheel"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --no-index --find-links "$top/wheels" countersteer
"$work/venv/bin/steer" sim -M i9-12900k-8p8e -w unequal-cores -P hsf -o "$top/records/hsf.rec" >/dev/null
tar -C "$work" --sort=name --owner=0 --group=0 -czf "$out" countersteer-artifact
echo "artifact: $(du -h "$out" | cut -f1) in $out; unpack it and run countersteer-artifact/run.sh" >&2
