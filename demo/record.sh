#!/usr/bin/env bash
# Records profiles of real programs: demo/record.sh STEER FOLDER. Those that are there already are kept.
# One recording per core runs at a time; the bar moves on when one is done.
set -euo pipefail
cd "$(dirname "$0")/.."
steer=$1 folder=$2
export IN=out/inputs
mkdir -p "$folder" "$IN"

[ -x "$IN/kernels" ] || cc -O2 -o "$IN/kernels" demo/kernels.c
make_input() { [ -s "$IN/$1" ] || { "$IN/kernels" "${@:2}" >"$IN/$1.part" && mv "$IN/$1.part" "$IN/$1"; }; }
make_input text text 3000000
make_input text-small text 600000
make_input text-large text 24000000
make_input source.c source 6
make_input video.y4m video 8

record_one() {
    local name=$1 command=${2//\$IN/$IN}
    [ -s "$folder/$name.json" ] && return
    # shellcheck disable=SC2086  # the command is split into words on purpose
    "$steer" profile --name "$name" -o "$folder/$name.json" -- $command </dev/null >/dev/null 2>"$IN/$name.log" || {
        echo "record.sh: $name failed:" >&2
        cat "$IN/$name.log" >&2
        return 1
    }
    show_bar "$(find "$folder" -name '*.json' | wc -l)" "$name: $(tail -n 1 "$IN/$name.log")"
}

show_bar() {
    local done_part left_part
    printf -v done_part '%*s' "$1" ''
    printf -v left_part '%*s' "$((total - $1))" ''
    printf '[%s%s] %d/%d %s\n' "${done_part// /#}" "${left_part// /.}" "$1" "$total" "$2" >&2
}
export -f record_one show_bar
total=$(grep -vc '^#' demo/programs.tsv)
export steer folder total
grep -v '^#' demo/programs.tsv | xargs -P "$(nproc)" -d '\n' -n 1 bash -c 'record_one "${1%%$'"'\t'"'*}" "${1#*$'"'\t'"'}"' record
