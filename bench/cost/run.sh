#!/usr/bin/env bash
# What an engine costs that places nothing, against Linux's own scheduler: bench/cost/run.sh [SCHBENCH]
# On an emulated CPU whose time is its instructions, so nothing else that the host does matters. SCHBENCH is that program, linked
# statically, for wake-up latencies; it is in no package. Prints a table in Markdown.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=bench/cost schbench=${1:-}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export scratch here
scripts/install.sh gcc libc6-dev python3 rt-tests

mkdir -p "$scratch/files/lib"
vm/build.sh amd64 "$scratch/built" --release
compiler=$(gcc -print-prog-name=cc1)
cp "$scratch/built/steer" "$(command -v hackbench)" "$compiler" ${schbench:+"$schbench"} "$scratch/files"
for program in hackbench cc1; do
    ldd "$scratch/files/$program" | grep -o '/[^ ]*' | xargs cp -Lt "$scratch/files/lib"
done
gcc -E vm/crowd.c -o "$scratch/files/crowd.i"
# Each engine on a machine of its own, that has just been switched on.
printf '%s\n' bare scx scx-full affinity | xargs -P "$(nproc)" -I{} bash -c \
    'vm/run.sh --exact --memory 2G --seconds 1800 "$scratch"/files/* -- "ENGINE={}; $(cat $here/command)" >"$scratch/{}" 2>"$scratch/{}.log" ||
    { cat "$scratch/{}.log" >&2; exit 255; }'
python3 $here/table.py "$scratch"
