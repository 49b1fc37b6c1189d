#!/usr/bin/env bash
# What counting costs, beside what perf costs: bench/stat/run.sh [ROUNDS]
# In a virtual machine with two CPUs, in which each instruction takes 2 ns, whichever CPU executes it: what is measured is all work
# together, undisturbed by the host. Prints a table in Markdown, of medians.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-3}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
scripts/install.sh gcc libc6-dev python3 linux-perf

cargo build --quiet --release -p countersteer-cli --features scx
cp "${CARGO_TARGET_DIR:-target}/release/steer" "$(command -v perf)" "$scratch"
gcc -O1 -pthread bench/stat/load.c -o "$scratch/load"
mkdir "$scratch/lib"
ldd "$scratch"/{steer,perf,load} | grep -o '/[^ :]*' | grep -v "^$scratch" | sort -u | xargs cp -Lt "$scratch/lib"
# `steer stat` prints a line of its own, too.
vm/run.sh --cpus 2 "$scratch"/{steer,perf,load,lib} -- "ROUNDS=$rounds; $(cat bench/stat/command)" |
    grep -v "CPUs used$" >"$scratch/times"
python3 - "$scratch/times" <<'EOF'
import collections, statistics, sys

times = collections.defaultdict(list)
for line in open(sys.argv[1]):
    program, way, microseconds = line.split()
    times[program, way].append(int(microseconds) / 1000)
ways = ["perf-100", "steer-100", "total-100", "perf-10", "steer-10", "total-10"]
print("| ms | alone |", " | ".join(ways), "|\n|---|" + "---:|" * (1 + len(ways)))
for program in dict.fromkeys(program for program, _ in times):
    median = [f"{statistics.median(times[program, way]):.0f}" if times[program, way] else "" for way in ["alone", *ways]]
    print(f"| {program} |", " | ".join(median), "|")
EOF
