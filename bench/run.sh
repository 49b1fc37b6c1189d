#!/usr/bin/env bash
# Measures everything that docs/benchmarks.md quotes, and writes it. Most of its time is for advice.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install.sh valgrind
page=$(mktemp)
kernel=$(mktemp)
trap 'rm -f "$page" "$kernel"' EXIT

# What a real kernel makes of the tasks that the Linux model is held to: one emulated CPU that counts instructions for time.
target=$(uname -m)-unknown-linux-gnu
RUSTFLAGS="-Ctarget-feature=+crt-static" cargo build --quiet --target "$target" -p countersteer-sysfs --example task_set
if vm/run.sh --arch "$(dpkg --print-architecture)" --exact bench/task-sets.tsv "${CARGO_TARGET_DIR:-target}/$target/debug/examples/task_set" -- \
    './task_set task-sets.tsv 3' >"$kernel"; then
    export COUNTERSTEER_KERNEL_RUN=$kernel
fi
{
    cat bench/head.md
    cargo run --release --quiet -p countersteer-sim --example bench
    cargo run --release --quiet -p countersteer-lab --example advice -- 200
    printf '\n### Recording speed, side by side with cachegrind\n\n'
    cargo run --release --quiet -p countersteer-profiler --example profile_speed
    echo
    # What was measured by hand stays as it is.
    sed -n '/^## Measured by hand$/,$p' docs/benchmarks.md
} >"$page"
cp "$page" docs/benchmarks.md
echo "bench: figures in docs/benchmarks.md" >&2
