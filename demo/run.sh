#!/usr/bin/env bash
# The whole way: record real programs, simulate two machines under every policy that has something to do there, compare, report.
set -euo pipefail
cd "$(dirname "$0")/.."
steer=$1 out=out/demo
mkdir -p $out/workloads
echo "demo: recording real programs in $out/profiles/recorded, some 3 minutes of CPU time" >&2
demo/record.sh "$steer" $out/profiles/recorded gzip bzip2 xz zstd sort gcc python perl stockfish x264 matmul chase stream sieve mix
cp workloads/shared-caches.toml workloads/unequal-cores.toml $out/workloads/
echo "demo: simulating two machines" >&2
"$steer" compare --machine core2-quad --machine i9-12900k-8p8e \
    --workload $out/workloads/shared-caches.toml --workload $out/workloads/unequal-cores.toml \
    --seeds 3 --report $out/report.html
echo "demo: open $out/report.html in a browser" >&2
