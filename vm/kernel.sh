#!/usr/bin/env bash
# The sets of tasks of crates/sim/tests/kernel/sets.tsv under kernels 7.2 (the newest) and 6.12 (of Debian's stable release), three times
# each: vm/kernel.sh FOLDER [RUN...]
# The machines are those of crates/sim/tests/kernel/world.rs. What vm/sets.c prints goes into FOLDER; a machine of eight CPUs takes some
# ten minutes of a host CPU.
set -euo pipefail
cd "$(dirname "$0")/.."
into=$1
shift
mkdir -p "$into"
for compiler in gcc aarch64-linux-gnu-gcc; do
    mkdir -p "$into/$compiler"
    $compiler -O2 -static -pthread -o "$into/$compiler/sets" vm/sets.c
done
# Name of the run (machine and kernel), CPUs or their capacities and clusters, kernel of vm/run.sh, llc_balancing.
runs='8_7.2                         8,sockets=2,cores=4,threads=1  newest  1
      8_7.2:llc_balancing=off       8,sockets=2,cores=4,threads=1  newest  0
      8-smt_7.2                     8,sockets=2,cores=2,threads=2  newest  1
      8-smt_7.2:llc_balancing=off   8,sockets=2,cores=2,threads=2  newest  0
      8_6.12                        8,sockets=2,cores=4,threads=1  stable  -
      8-smt_6.12                    8,sockets=2,cores=2,threads=2  stable  -
      4_7.2                         4,sockets=1,cores=4,threads=1  newest  1
      4_6.12                        4,sockets=1,cores=4,threads=1  stable  -
      4-asym_7.2                    1024,1024,446,446              newest  1
      8-clusters_7.2                1024,1024,1024,1024,446,446,446,446/1,1,1,1,4       newest  1
      8-clusters-equal_7.2          1024,1024,1024,1024,1024,1024,1024,1024/1,1,1,1,4  newest  1'
found=
while read -r name cpus kernel gather; do
    [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
    found=yes
    compiler=gcc machine=(--cpus "$cpus") sets='[^@]*'
    # Fewer tasks than CPUs, as many, and more; tasks that sleep.
    [[ $name != *-asym_* ]] || compiler=aarch64-linux-gnu-gcc machine=(--arch arm64 --capacities "$cpus") sets='two|three|half|1x3|all|mix|sleep|pipe'
    [[ $name != *-clusters* ]] || compiler=aarch64-linux-gnu-gcc machine=(--arch arm64 --capacities "${cpus%/*}" --clusters "${cpus#*/}") sets='.*@clusters'
    grep -E "^(#|($sets)	)" crates/sim/tests/kernel/sets.tsv >"$into/sets.tsv"
    vm/run.sh --kernel $kernel "${machine[@]}" --seconds 3000 \
        "$into/$compiler/sets" "$into/sets.tsv" -- "
            mount -t debugfs none /sys/kernel/debug
            cpu=/sys/devices/system/cpu/cpu0
            cache=\$(ls -d \$cpu/cache/index? | tail -n 1)
            echo \"# kernel \$(uname -r), CPUs \$(cat \$cache/shared_cpu_list) share a cache, CPUs \$(cat \$cpu/topology/thread_siblings_list) a core\"
            [ ! -e \$cpu/cpu_capacity ] || echo \"# capacities\" \$(cat /sys/devices/system/cpu/cpu[0-9]*/cpu_capacity)
            switch=/sys/kernel/debug/sched/llc_balancing/enabled
            [ ! -e \$switch ] || echo $gather >\$switch
            [ ! -e \$switch ] || echo \"# llc_balancing \$(cat \$switch)\"
            for run in 1 2 3; do sets sets.tsv 1.5; done" </dev/null >"$into/$name.tsv.new"
    mv "$into/$name.tsv.new" "$into/$name.tsv"
done <<<"$runs"
[ -n "$found" ] || { echo "kernel.sh: there is no run $*" >&2 && exit 2; }
