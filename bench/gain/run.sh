#!/usr/bin/env bash
# What a policy gains on real threads, beside what the simulator says that it gains: bench/gain/run.sh [ROUNDS [SPEEDS]]
# In a virtual machine with two fast CPUs and two at half their speed, once with a kernel that knows of it, once without.
# Prints tables in Markdown. SPEEDS are millions of instructions a second by CPU; the host must be able to execute all of them.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-5} speeds=${2:-240,240,120,120}
here=bench/gain
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
scripts/install.sh gcc libc6-dev python3
scripts/recorder-engine.sh --unless-here >/dev/null

cargo build --quiet --release -p countersteer-cli -p countersteer-capture --features scx
cargo rustc --quiet --release -p countersteer-capi --lib --crate-type staticlib
release=${CARGO_TARGET_DIR:-target}/release
gcc -O1 -pthread -Icrates/capi/include crates/capi/examples/work.c "$release/libcountersteer_c.a" -lm -o "$scratch/work"
"$release/steer" profile -o "$scratch/work.json" --max-instructions 300M -- "$scratch/work" 20000 >&2
vm/build.sh arm64 "$scratch/arm64" --release
for unknown in '' --no-capacities; do
    vm/run.sh --arch arm64 --speeds "$speeds" $unknown "$scratch"/arm64/{steer,work} $here/{machine,mix}.toml -- \
        "ROUNDS=$rounds; $(cat $here/command)" >"$scratch/live$unknown"
    cat "$scratch/live$unknown" >&2
done
python3 $here/table.py "$release/steer" "$scratch"
