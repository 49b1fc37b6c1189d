#!/usr/bin/env bash
# Measures sampled recording: bench/sampled.sh [NAME...] records programs of demo/programs.tsv exactly and by samples, and prints the errors
# of the samples. Then it prints the speeds beside cachegrind's, of four programs in turns. Without names, it takes 30 short programs.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/install.sh valgrind
cargo build --release --quiet -p countersteer-cli -p countersteer-capture
steer=${CARGO_TARGET_DIR:-target}/release/steer
names=("$@")
[ $# -gt 0 ] || names=(gzip bzip2 xz zstd brotli sort gcc gcc-real python perl lua gawk gnugo x264 convert cjpeg cwebp povray xsltproc
    xmllint sqlite minisat tetgen matmul bodies stencil chase mix gzip-table zstd-fast zopfli python-orbits jq grep sed md5sum)
exact=out/sampled/exact sampled=out/sampled/sampled
demo/record.sh "$steer" "$exact" "${names[@]}" >&2
RECORD=--sampled demo/record.sh "$steer" "$sampled" "${names[@]}" >&2
cargo run --release --quiet -p countersteer-lab --example sampled -- "$exact" "$sampled"
echo
cargo run --release --quiet -p countersteer-profiler --example profile_speed
