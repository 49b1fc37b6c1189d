#!/usr/bin/env bash
# Records profiles of real programs: demo/record.sh [--long] STEER FOLDER [NAME...], all of programs.tsv without names. With
# --long the longer command is recorded where there is one. Those that are there already are kept.
# The variable RECORD has options of `steer profile`, such as --sampled.
# One recording per core runs at a time; the bar moves on when one is done.
set -euo pipefail
cd "$(dirname "$0")/.."
long=
[ "${1-}" != --long ] || { long=yes && shift; }
steer=$1 folder=$2
shift 2
export IN=out/inputs
mkdir -p "$folder" "$IN"

wanted() {
    local pattern=.
    [ $# -eq 0 ] || pattern="^($(IFS='|' && echo "$*"))"$'\t'
    grep -v '^#' demo/programs.tsv | grep -E "$pattern" | awk -F'\t' -v OFS='\t' -v long=$long '{print $1, $2, long && $4 ? $4 : $3}'
}
lines=$(wanted "$@")

[ -x "$IN/kernels" ] || cc -O2 -o "$IN/kernels" demo/kernels.c
# Input: name of the file, and how `kernels` makes it; only where a program wants it.
make_input() {
    [[ $lines == *"\$IN/${1%.inp}"* ]] && [ ! -s "$IN/$1" ] || return 0
    "$IN/kernels" "${@:2}" >"$IN/$1.part"
    mv "$IN/$1.part" "$IN/$1"
}
make_input text text 3000000
make_input text-small text 600000
make_input text-medium text 6000000
make_input text-large text 24000000
make_input text-huge text 200000000
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
make_input text-tiny text 60000
make_input source-large.c source 60
make_input video-medium.y4m video 60
make_input video-large.y4m video 150
make_input orders-huge.xml xml 250000
make_input table-large.sql sql 200000
make_input clauses-large.cnf sat 260
make_input transport-large.lp transport 200
make_input points-large.node points 150000
make_input beam-large.inp beam 150
# Those that a script makes: kind, size, name of the file; only where a program wants it.
make_material() {
    [[ $lines == *"\$IN/$3"* ]] && [ ! -s "$IN/$3" ] || return 0
    /usr/bin/python3 demo/materials.py "$1" "$2" >"$IN/$3.part"
    mv "$IN/$3.part" "$IN/$3"
}
make_material sound 60 sound.wav
make_material genome 400000 genome.fa
make_material reads 400000 reads.fa
make_material alignment 12 alignment.phy
make_material graph 150 graph.dot
make_material json 10000 orders.json
make_material drawing 400 drawing.ps
make_material bitmap 500 discs.pbm
make_material factors 13 factors.smt2
make_material cloud 8000 points.cloud
# Programs that take as many threads as there are CPUs take this many on every machine.
export OMP_NUM_THREADS=4

# A line: name, family, and the command that is recorded.
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
    local ignore=()
    # Its exit code says that there is a solution, or none.
    [ "$name" != minisat ] || ignore=(--ignore-failure)
    # What is interrupted leaves no profile that the next run would take for a whole one.
    "$steer" profile ${RECORD:-} "${ignore[@]}" --name "$name" -o "$folder/.$name.part" -- "${words[@]}" </dev/null >"$IN/$name.out" 2>"$IN/$name.log" || {
        echo "record.sh: $name ($family) failed:" >&2
        cat "$IN/$name.log" >&2
        rm -f "$folder/.$name.part"
        return 1
    }
    mv "$folder/.$name.part" "$folder/$name.json"
    rm -f "$IN/$name.out"
    show_bar "$(cut -f1 <<<"$lines" | while read -r n; do [ ! -s "$folder/$n.json" ] || echo "$n"; done | wc -l)" "$name"
}

show_bar() {
    local done_part left_part
    printf -v done_part '%*s' "$1" ''
    printf -v left_part '%*s' "$((total - $1))" ''
    printf '[%s%s] %d/%d %s\n' "${done_part// /#}" "${left_part// /.}" "$1" "$total" "$2" >&2
}
export -f record_one show_bar
total=$(wc -l <<<"$lines")
export steer folder total lines
printf '%s\n' "$lines" | xargs -P "$(env -u OMP_NUM_THREADS nproc)" -d '\n' -n 1 bash -c 'record_one "$1"' record
