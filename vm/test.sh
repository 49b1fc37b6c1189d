#!/usr/bin/env bash
# Tests that need a real kernel or a PMU: vm/test.sh [CASE...]
# Every folder of vm/cases/ is a case: `machine` holds options of vm/run.sh, `command` runs in the virtual machine, and
# `check.py` gets what it printed and judges. The program under test is built static for the machine's processor.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/skip.sh vm
scripts/install.sh python3 || skip "python3 is missing"
vm/fetch.sh >/dev/null || skip "QEMU and kernels cannot be fetched (see above)"
export scratch=$(mktemp -d) PYTHONPATH=$PWD/vm PYTHONDONTWRITEBYTECODE=1
trap 'rm -rf "$scratch"' EXIT

# Options of a case's machine.
options() {
    read -r -a options <"$1/machine"
    arch=amd64
    [ "${options[0]}" != --arch ] || arch=${options[1]}
}

# How many machines run at a time: each keeps one host CPU busy and needs 2.5 GB of memory. A container may have less than its host.
machines_at_once() {
    {
        nproc
        awk '$1 != "max" { print int($1 / $2) }' /sys/fs/cgroup/cpu.max || true
        awk '$1 == "MemAvailable:" { print int($2 * 1024 / 2.5e9) }' /proc/meminfo
        awk '$1 != "max" { print int($1 / 2.5e9) }' /sys/fs/cgroup/memory.max || true
    } 2>/dev/null | sort -n | awk 'NR == 1 { print ($1 > 1 ? $1 : 1) }'
}

# Tries a case, with the programs and files that it names.
try() {
    local folder=$1 output=$scratch/${1##*/} status=0 text file files=() kernel
    options "$folder"
    text=$(cat "$folder/command")
    [[ $text != *shared.sh* ]] || text+=$(cat vm/shared.sh)
    for file in "$scratch/programs/$arch"/*; do
        ! grep -qwF -- "${file##*/}" <<<"$text" || files+=("$file")
    done
    SECONDS=0
    vm/run.sh "${options[@]}" "${files[@]}" -- "$(cat "$folder/command")" >"$output" 2>"$output.log" || status=$?
    if [ $status = 0 ] && python3 "$folder/check.py" <"$output" 2>>"$output.log"; then
        echo "test vm::${folder##*/} ... ok <${SECONDS}s>" | tee -a "$scratch/results"
    else
        # What the judge or the machine said last comes first: logs are often cut short.
        {
            echo "exit code $status"
            tail -n 12 "$output.log"
            echo "-- printed in the machine:"
            tail -n 300 "$output"
            echo "-- log:"
            cat "$output.log"
        } >"$output.printed"
        # Kernels come from an archive that moves on.
        kernel=$(sed -n 's/^run.sh: kernel //p' "$output.log")
        echo "test vm::${folder##*/} ... FAILED <${SECONDS}s> under $kernel" | tee -a "$scratch/results"
    fi
}
export -f options try

folders=()
for folder in ${@:-vm/cases/*}; do
    [[ $folder = */* ]] || folder=vm/cases/$folder
    [ -f "$folder/command" ] || { echo "vm/test.sh: there is no case $folder; \`ls vm/cases\` shows all" >&2 && exit 2; }
    folders=("${folder%/}" "${folders[@]}")
    options "$folder"
    if [ ! -d "$scratch/programs/$arch" ]; then
        vm/build.sh "$arch" "$scratch/programs/$arch" || {
            [ $? != 125 ] || skip "programs for $arch cannot be built (see above)"
            exit 1
        }
    fi
done
printf '%s\0' "${folders[@]}" | xargs -0 -n 1 -P "$(machines_at_once)" bash -c 'try "$1"' try
for printed in "$scratch"/*.printed; do
    [ ! -e "$printed" ] || { name=${printed##*/} && printf '\n---- vm::%s printed ----\n' "${name%.printed}" && cat "$printed"; }
done
failed=$(grep -c ' FAILED <' "$scratch/results" || true)
grep ' FAILED <' "$scratch/results" || true
echo "vm: $(grep -c ' ok <' "$scratch/results" || true) passed, $failed failed"
[ "$failed" = 0 ]
