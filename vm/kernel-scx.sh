#!/usr/bin/env bash
# The sets of tasks of crates/sim/tests/kernel/sets.tsv under the newest kernel, whose scheduler is a test scheduler of crates/scx, on
# eight CPUs with two last-level caches, three times: vm/kernel-scx.sh FOLDER
# What vm/sets.c prints goes into FOLDER. Then: COUNTERSTEER_KERNEL_RUNS=FOLDER cargo test -p countersteer-scx --test kernel -- --ignored
set -euo pipefail
cd "$(dirname "$0")/.."
into=$1
scripts/install.sh gcc clang-19 libelf-dev zlib1g-dev
mkdir -p "$into"
# The workspace builds libbpf; that of Debian 12 is too old for schedulers.
"${CARGO:-cargo}" build --quiet -p countersteer-bpf
libbpf=$(ls -td "${CARGO_TARGET_DIR:-target}"/debug/build/libbpf-sys-*/out | head -n 1)
clang-19 -target bpf -O2 -g -mcpu=v3 -D__TARGET_ARCH_x86 -Ivm/scx -I"$libbpf/include" -c crates/scx/tests/schedulers/vtime.bpf.c -o "$into/vtime.bpf.o"
gcc -O2 -static -I"$libbpf/include" -o "$into/load" vm/load.c "$libbpf/libbpf.a" -lelf -lz
gcc -O2 -static -pthread -o "$into/sets" vm/sets.c
# The kernel ends a scheduler that does not handle hotplug.
grep -v "^off" crates/sim/tests/kernel/sets.tsv >"$into/sets.tsv"
vm/run.sh --cpus 8,sockets=2,cores=4,threads=1 --seconds 3000 \
    "$into"/{sets,sets.tsv,load,vtime.bpf.o} -- "
        ./load vtime.bpf.o >loaded 2>&1 &
        sleep 2
        grep -q loaded loaded || { cat loaded; exit 1; }
        echo \"# kernel \$(uname -r), scheduler \$(cat /sys/kernel/sched_ext/root/ops)\"
        for run in 1 2 3; do ./sets sets.tsv 1.5; done
        [ \$(cat /sys/kernel/sched_ext/state) = enabled ] || { cat loaded; exit 1; }" >"$into/printed"
grep -P '^#|\t' "$into/printed" >"$into/8_vtime.tsv"
