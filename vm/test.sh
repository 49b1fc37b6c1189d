#!/usr/bin/env bash
# Tests that need a real kernel or a PMU: vm/test.sh [CASE...]
# Every folder of vm/cases/ is a case: `machine` holds options of vm/run.sh, `command` runs in the virtual machine, and
# `check.py` gets what it printed and judges. The program under test is built static for the machine's processor.
set -euo pipefail
cd "$(dirname "$0")/.."
skip() {
    echo "vm: skipped: $1"
    exit 0
}
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

# Tries a case.
try() {
    local folder=$1 output=$scratch/${1##*/} status=0
    options "$folder"
    vm/run.sh "${options[@]}" "$scratch/programs/$arch/"* -- "$(cat "$folder/command")" >"$output" 2>"$output.log" || status=$?
    if [ $status = 0 ] && python3 "$folder/check.py" <"$output" 2>>"$output.log"; then
        echo "vm: $folder ... ok" | tee -a "$scratch/results"
    else
        {
            echo "vm: $folder ... FAILED (exit code $status); it printed:"
            tail -n 300 "$output"
            cat "$output.log"
        } >"$output.told"
        cat "$output.told"
        echo "vm: $folder ... FAILED" >>"$scratch/results"
    fi
}
export -f options try

# Machines whose CPUs take turns on one host CPU run side by side; those that use all there are run alone.
narrow=() wide=()
for folder in ${@:-vm/cases/*}; do
    folder=${folder%/}
    options "$folder"
    case $arch:${options[*]} in
    amd64:* | *--exact*) narrow+=("$folder") ;;
    *) wide+=("$folder") ;;
    esac
    if [ ! -d "$scratch/programs/$arch" ]; then
        vm/build.sh "$arch" "$scratch/programs/$arch" || {
            [ $? != 125 ] || skip "programs for $arch cannot be built (see above)"
            exit 1
        }
    fi
done
[ ${#narrow[@]} = 0 ] || printf '%s\0' "${narrow[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c 'try "$1"' try
[ ${#wide[@]} = 0 ] || for folder in "${wide[@]}"; do try "$folder"; done
failed=$(grep -c FAILED "$scratch/results" || true)
echo "vm: result: $(grep -c ok$ "$scratch/results" || true) passed; $failed failed"
[ "$failed" = 0 ]
