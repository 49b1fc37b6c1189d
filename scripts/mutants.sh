#!/usr/bin/env bash
# How many small changes of the code the tests notice: scripts/mutants.sh [MUTANTS [SEED]]
# Takes about MUTANTS of all mutants (cargo-mutants), spread evenly; SEED says which. Each runs the tests of its own crate.
# Those that no test noticed are listed at the end; mutants.out/ has the rest. Some minutes each: not for continuous integration.
set -euo pipefail
cd "$(dirname "$0")/.."
mutants=${1:-150} seed=${2:-1}
command -v cargo-mutants >/dev/null || cargo install --locked cargo-mutants
# What decides, measures, simulates, undoes and records.
files=(
    'crates/policies/src/**/*.rs'
    'crates/model/src/driver.rs' 'crates/model/src/metric/**/*.rs'
    'crates/sim/src/linux/**/*.rs' 'crates/sim/src/progress/**/*.rs'
    'crates/live/src/undo/**/*.rs'
    'crates/report/src/record/**/*.rs'
)
options=(--exclude '**/tests/**' --exclude '**/tests.rs')
for file in "${files[@]}"; do options+=(--file "$file"); done
all=$(cargo mutants --list "${options[@]}" | wc -l)
shards=$(((all + mutants - 1) / mutants))
# Changes are made in a copy; what is built there serves the next one.
status=0
cargo mutants "${options[@]}" --shard "$((seed % shards))/$shards" --sharding round-robin \
    --no-shuffle --timeout "${TIMEOUT:-600}" --copy-vcs true --output . "${@:3}" || status=$?
# 2: some were missed; 3: some took too long.
((status == 0 || status == 2 || status == 3)) || exit "$status"
count() { wc -l <"mutants.out/$1.txt"; }
caught=$(($(count caught) + $(count timeout))) missed=$(count missed)
sed 's/^/not noticed: /' mutants.out/missed.txt
echo "$caught of $((caught + missed)) mutants noticed, $(count unviable) that do not compile; $all in all, seed $seed"
