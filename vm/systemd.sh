#!/usr/bin/env bash
# Puts this machine's systemd into a virtual machine's root, with what its programs need and a unit for /command: vm/systemd.sh ROOT
set -euo pipefail
cd "$(dirname "$0")/.."
root=$1
scripts/install.sh systemd libc-bin
programs=(/lib/systemd/systemd /lib/systemd/systemd-shutdown /bin/systemctl)
# From 254 on, what runs units is a program of its own.
[ ! -e /lib/systemd/systemd-executor ] || programs+=(/lib/systemd/systemd-executor)
for file in $(ldd "${programs[@]}" | grep -o '/[^ :]*' | sort -u); do
    install -D "$(realpath "$file")" "$root$file"
done
units=$root/lib/systemd/system
mkdir -p "$units" "$root"/{etc,var,sbin,root}
for unit in basic sysinit multi-user sockets timers paths slices local-fs shutdown umount final; do
    cp "/lib/systemd/system/$unit.target" "$units/"
done
ln -s multi-user.target "$units/default.target"
cat >"$units/command.service" <<'EOF'
[Service]
ExecStart=/bin/busybox sh /init
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
EOF
mkdir "$units/multi-user.target.wants"
ln -s ../command.service "$units/multi-user.target.wants/"
echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"
