#!/usr/bin/env bash
# Records profiles of real programs: demo/record.sh STEER FOLDER [NAME...], all of programs.tsv without names. Those that are
# there already are kept.
# One recording per core runs at a time; the bar moves on when one is done.
set -euo pipefail
cd "$(dirname "$0")/.."
steer=$1 folder=$2
shift 2
export IN=out/inputs
mkdir -p "$folder" "$IN"

[ -x "$IN/kernels" ] || cc -O2 -o "$IN/kernels" demo/kernels.c
make_input() { [ -s "$IN/$1" ] || { "$IN/kernels" "${@:2}" >"$IN/$1.part" && mv "$IN/$1.part" "$IN/$1"; }; }
make_input text text 3000000
make_input text-small text 600000
make_input text-large text 24000000
make_input source.c source 6
make_input video.y4m video 8
make_input picture.ppm picture 400
make_input picture-large.ppm picture 1000
make_input orders.xml xml 15000
make_input orders-large.xml xml 30000
make_input table.sql sql 30000
make_input clauses.cnf sat 200
make_input transport.lp transport 80
make_input points.node points 12000
make_input beam.inp beam 30

# A line of programs.tsv: name, family, command.
record_one() {
    local name family command words
    IFS=$'\t' read -r name family command <<<"$1"
    [ -s "$folder/$name.json" ] && return
    command=${command//\$IN/$IN}
    mapfile -t words < <(sed 's/\([^\\]\) /\1\n/g; s/\\ / /g' <<<"$command")
    if ! command -v "${words[0]}" >/dev/null; then
        echo "record.sh: $name is left out, since ${words[0]} is not installed; its shipped profile stands in" >&2
        return
    fi
    # What is interrupted leaves no profile that the next run would take for a whole one.
    "$steer" profile --name "$name" -o "$folder/.$name.part" -- "${words[@]}" </dev/null >"$IN/$name.out" 2>"$IN/$name.log" || {
        echo "record.sh: $name ($family) failed:" >&2
        cat "$IN/$name.log" >&2
        rm -f "$folder/.$name.part"
        return 1
    }
    mv "$folder/.$name.part" "$folder/$name.json"
    rm -f "$IN/$name.out"
    show_bar "$(find "$folder" -name '[!.]*.json' | wc -l)" "$name"
}

show_bar() {
    local done_part left_part
    printf -v done_part '%*s' "$1" ''
    printf -v left_part '%*s' "$((total - $1))" ''
    printf '[%s%s] %d/%d %s\n' "${done_part// /#}" "${left_part// /.}" "$1" "$total" "$2" >&2
}
export -f record_one show_bar
wanted() {
    local pattern=.
    [ $# -eq 0 ] || pattern="^($(IFS='|' && echo "$*"))"$'\t'
    grep -v '^#' demo/programs.tsv | grep -E "$pattern"
}
total=$(wanted "$@" | wc -l)
export steer folder total
wanted "$@" | xargs -P "$(nproc)" -d '\n' -n 1 bash -c 'record_one "$1"' record
