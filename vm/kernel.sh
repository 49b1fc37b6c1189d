#!/usr/bin/env bash
# The sets of tasks of crates/sim/tests/kernel/sets.tsv under the newest kernel, on eight CPUs with two last-level caches, one and two
# CPUs per core, with processes gathered under caches and not, three times each: vm/kernel.sh FOLDER
# What vm/sets.c prints goes into FOLDER; a machine takes some ten minutes of a host CPU.
set -euo pipefail
cd "$(dirname "$0")/.."
into=$1
mkdir -p "$into"
gcc -O2 -static -pthread -o "$into/sets" vm/sets.c
switch=/sys/kernel/debug/sched/llc_balancing/enabled
for threads in 1 2; do
    for gather in on off; do
        [ $gather = on ] && value=1 || value=0
        vm/run.sh --turns --cpus "8,sockets=2,cores=$((4 / threads)),threads=$threads" --seconds 3000 \
            "$into/sets" crates/sim/tests/kernel/sets.tsv -- "
                mount -t debugfs none /sys/kernel/debug
                cpu=/sys/devices/system/cpu/cpu0
                echo \"# kernel \$(uname -r), CPUs \$(cat \$cpu/cache/index3/shared_cpu_list) share a cache, CPUs \$(cat \$cpu/topology/thread_siblings_list) a core\"
                echo $value >$switch
                echo \"# llc_balancing \$(cat $switch)\"
                for run in 1 2 3; do sets sets.tsv 1.5; done" >"$into/$threads-$gather.tsv.new"
        mv "$into/$threads-$gather.tsv.new" "$into/$threads-$gather.tsv"
    done
done
