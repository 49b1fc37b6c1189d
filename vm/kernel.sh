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
gcc -O2 -static -pthread -o "$into/sets" vm/sets.c
# Name of the run (machine and kernel), CPUs, kernel of vm/run.sh, llc_balancing.
runs='8_7.2                         8,sockets=2,cores=4,threads=1  newest  1
      8_7.2:llc_balancing=off       8,sockets=2,cores=4,threads=1  newest  0
      8-smt_7.2                     8,sockets=2,cores=2,threads=2  newest  1
      8-smt_7.2:llc_balancing=off   8,sockets=2,cores=2,threads=2  newest  0
      8_6.12                        8,sockets=2,cores=4,threads=1  stable  -
      8-smt_6.12                    8,sockets=2,cores=2,threads=2  stable  -
      4_7.2                         4,sockets=1,cores=4,threads=1  newest  1
      4_6.12                        4,sockets=1,cores=4,threads=1  stable  -'
while read -r name cpus kernel gather; do
    [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
    vm/run.sh --turns --kernel $kernel --cpus "$cpus" --seconds 3000 \
        "$into/sets" crates/sim/tests/kernel/sets.tsv -- "
            mount -t debugfs none /sys/kernel/debug
            cpu=/sys/devices/system/cpu/cpu0
            echo \"# kernel \$(uname -r), CPUs \$(cat \$cpu/cache/index3/shared_cpu_list) share a cache, CPUs \$(cat \$cpu/topology/thread_siblings_list) a core\"
            switch=/sys/kernel/debug/sched/llc_balancing/enabled
            [ ! -e \$switch ] || echo $gather >\$switch
            [ ! -e \$switch ] || echo \"# llc_balancing \$(cat \$switch)\"
            for run in 1 2 3; do sets sets.tsv 1.5; done" >"$into/$name.tsv.new"
    mv "$into/$name.tsv.new" "$into/$name.tsv"
done <<<"$runs"
