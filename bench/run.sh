#!/usr/bin/env bash
# Measures everything that docs/benchmarks.md quotes, and writes it. Takes about ten minutes on two idle cores.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install.sh valgrind
page=$(mktemp)
trap 'rm -f "$page"' EXIT
{
    cat bench/head.md
    cargo run --release --quiet -p countersteer-sim --example bench
    printf '\n### Recording speed, side by side with cachegrind\n\n'
    cargo run --release --quiet -p countersteer-host --example profile_speed
} >"$page"
cp "$page" docs/benchmarks.md
echo "bench: figures in docs/benchmarks.md" >&2
