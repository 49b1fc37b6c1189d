#!/usr/bin/env bash
# Runs a command under a stock kernel in a virtual machine, without KVM:
#   vm/run.sh [--arch amd64|arm64] [--cpus N] [--memory SIZE] [--kernel newest|oldest|stable]
#          [--exact] [--speeds LIST] [--capacities LIST [--clusters LIST]] [--systemd] [--seconds N] [FILE ...] -- COMMAND
# FILEs (programs, data) lie in the current folder of COMMAND, a busybox shell line run as root. Its output comes out
# here and its exit code is passed on. Time in the machine passes with the instructions that it executes, however busy the host
# is: 2 ns each, its CPUs taking turns. --cpus takes what QEMU's -smp does. --exact: one CPU, 4 ns each, and instructions are counted
# exactly (arm64's PMU counts them).
# --kernel, for amd64: oldest is the first that the scheduler in the kernel is for, stable the one of Debian's stable release.
# --speeds 60,60,30,30 lets each CPU execute so many million instructions a second; time passes as on the host, which must be able
# to execute all that. The kernel of an arm64 machine is told the CPUs' capacities; --no-capacities: it does not know them.
# --capacities 1024,1024,446,446, for arm64: capacities that the kernel reads of equal CPUs. --clusters 1,1,2: numbers of CPUs that
# form clusters, in order.
# --systemd, for amd64: the host's systemd is the first process, and runs COMMAND.
# Exits with 125 when the machine did not come up or died, 124 when it ran out of time.
set -euo pipefail
here=$(dirname "$0")
arch=amd64 cpus=4 memory=1G exact= systemd= speeds= capacities= clusters= no_capacities= kernel= seconds=1800 files=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case $1 in
    --arch) arch=$2 && shift ;;
    --cpus) cpus=$2 && shift ;;
    --memory) memory=$2 && shift ;;
    --kernel) kernel=${2#newest} && shift ;;
    --seconds) seconds=$2 && shift ;;
    --exact) exact=yes ;;
    --systemd) systemd=yes ;;
    --speeds) speeds=$2 && shift ;;
    --capacities) capacities=$2 && shift ;;
    --clusters) clusters=$2 && shift ;;
    --no-capacities) no_capacities=yes ;;
    -*) echo "run.sh: there is no option $1" >&2 && exit 2 ;;
    *) files+=("$1") ;;
    esac
    shift
done
[ $# -gt 1 ] || { sed -n '2,15s/^# //p' "$0" >&2; exit 2; }
shift

cache=$("$here/fetch.sh")
scratch=$(mktemp -d)
running=
clean_up() {
    [ -z "$running" ] || { kill "$running" && wait "$running"; } 2>/dev/null || true
    rm -rf "$scratch"
}
trap clean_up EXIT

root=$scratch/root
mkdir -p "$root"/{bin,dev,here,proc,sys,tmp}
cp "$cache/$arch/busybox" "$root/bin/busybox"
cp "$here/init" "$root/init"
[ ${#files[@]} = 0 ] || cp -r "${files[@]}" "$root/here/"
# Programs of this machine's own kind may need shared libraries.
for library in $([ ${#files[@]} = 0 ] || ldd "${files[@]}" 2>/dev/null | grep -o '/[^ :]* (0x' | cut -d' ' -f1 | sort -u); do
    install -D "$(realpath "$library")" "$root$library"
done
printf '%s\n' "$*" >"$root/command"
[ -z "$systemd" ] || "$here/systemd.sh" "$root"
(cd "$root" && find . | "$cache/amd64/busybox" cpio -o -H newc 2>/dev/null) | gzip -1 >"$scratch/initrd"

machine=() options=
case $arch in
# Flags are lost now and then in cmpxchg16b, of which old kernels die; the newest has no storage for tasks without it.
amd64) qemu=qemu-system-x86_64 console=ttyS0 machine=(-M q35 -cpu "max$([ -z "$kernel" ] || echo ,cx16=off)") ;;
# Signing addresses the way that processors do would take half of an emulated CPU.
arm64) qemu=qemu-system-aarch64 console=ttyAMA0 machine=(-M virt -cpu max,pauth-impdef=on) ;;
*) echo "run.sh: no machine for $arch; amd64 and arm64 are there" >&2 && exit 2 ;;
esac
image=$cache/$arch/$kernel/vmlinuz
echo "run.sh: kernel $(LC_ALL=C grep -aom 1 '[0-9][0-9.]*[0-9a-z.+~-]*-cloud-[a-z0-9]*' "$image" | head -n 1)" >&2
accel=tcg,thread=single shift=1
[ -z "$exact" ] || cpus=1 shift=2
if [ -n "$speeds" ]; then
    [ -z "$exact" ] || { echo "run.sh: --speeds is not for --exact" >&2 && exit 2; }
    # On a busy host, a PC's kernel would find its timer too late.
    [ "$arch" = arm64 ] || no_capacities=yes options=" no_timer_check"
    accel=tcg,thread=multi
else
    machine+=(-icount "shift=$shift,sleep=off" -rtc "base=2026-01-01T00:00:00,clock=vm" -seed 1)
fi

# Self-tests of ciphers would take most of an emulated CPU for the first ten seconds.
share=$cache/qemu/usr
[ -z "$capacities" ] || [ -z "$exact$speeds" ] || { echo "run.sh: --capacities is not for --exact or --speeds" >&2 && exit 2; }
[ -z "$capacities" ] || [ "$arch" = arm64 ] || { echo "run.sh: --capacities is for arm64" >&2 && exit 2; }
# Libraries of QEMU's own release; no other program may see them.
libraries=$(find "$share/.." -name '*.so*' -printf '%h\n' | sort -u | paste -s -d :)
# The C library of that release needs its own loader.
emulator=("$(find "$share" -name ld-linux-x86-64.so.2 | head -n 1)" --library-path "$libraries" "$share/bin/$qemu")
if [ -n "$speeds" ]; then
    IFS=, read -r -a speed <<<"$speeds"
    cpus=${#speed[@]}
    "$here/../scripts/install.sh" gcc libc6-dev
    gcc -O2 -shared -fPIC -o "$scratch/pace.so" "$here/pace.c"
    [ -n "$no_capacities" ] || capacities=$speeds
    machine+=(-plugin "$scratch/pace.so,mips=${speeds//,/:}")
fi
if [ -n "$capacities" ]; then
    IFS=, read -r -a capacity <<<"$capacities"
    cpus=${#capacity[@]}
    "$here/../scripts/install.sh" device-tree-compiler
    # What the machine is like, with each CPU's capacity added; QEMU adds the command line and the rest.
    "${emulator[@]}" "${machine[@]}" -accel "$accel" -smp "$cpus" -m "$memory" -nodefaults -display none -machine dumpdtb="$scratch/tree" 2>"$scratch/errors" ||
        { cat "$scratch/errors" >&2 && exit 125; }
    most=$(printf '%s\n' "${capacity[@]}" | sort -n | tail -n 1)
    for n in "${!capacity[@]}"; do
        fdtput -t u "$scratch/tree" "/cpus/cpu@$n" capacity-dmips-mhz $((1024 * capacity[n] / most))
    done
    if [ -n "$clusters" ]; then
        IFS=, read -r -a cluster <<<"$clusters"
        fdtput -r "$scratch/tree" /cpus/cpu-map
        n=0
        for c in "${!cluster[@]}"; do
            for ((core = 0; core < cluster[c]; core++, n++)); do
                place=/cpus/cpu-map/socket0/cluster$c/core$core
                fdtput -cp "$scratch/tree" "$place"
                fdtput -t u "$scratch/tree" "$place" cpu "$(fdtget -t u "$scratch/tree" "/cpus/cpu@$n" phandle)"
            done
        done
    fi
    machine+=(-dtb "$scratch/tree")
fi

status=0
timeout -k 5 "$seconds" "${emulator[@]}" "${machine[@]}" -accel "$accel" -smp "$cpus" -m "$memory" \
    -L "$share/share/qemu" -L "$share/share/seabios" -nodefaults -no-reboot -display none -serial stdio -nic none \
    -kernel "$image" -initrd "$scratch/initrd" \
    -append "console=$console panic=-1 loglevel=3 quiet cryptomgr.notests$options" </dev/null >"$scratch/console" 2>"$scratch/errors" &
running=$!
if [ -n "$speeds" ]; then
    # From the command on; the kernel has started at full speed.
    until grep -q '^countersteer-vm: begin' "$scratch/console" || ! kill -0 $running 2>/dev/null; do sleep 0.1; done
    pkill -RTMIN -P $running || true
fi
wait $running || status=$?
running=

# The kernel's console ends lines with a carriage return; what the command printed lies between two marks.
tr -d '\r' <"$scratch/console" | sed -n '/^countersteer-vm: begin$/,/^countersteer-vm: exit /p' |
    sed '/^countersteer-vm: /d' | sed '${/^$/d}'
code=$(tr -d '\r' <"$scratch/console" | sed -n 's/^countersteer-vm: exit \([0-9]*\)$/\1/p' | tail -n 1)
[ -z "$code" ] || exit "$code"
cat "$scratch/errors" >&2
tail -n 30 "$scratch/console" | tr -d '\r' >&2
if [ $status = 124 ] || [ $status = 137 ]; then
    echo "run.sh: the virtual machine was still busy after $seconds s" >&2
    exit 124
fi
echo "run.sh: the virtual machine ended without an answer (QEMU's exit status $status)" >&2
exit 125
