#!/usr/bin/env bash
# Installs the Debian packages named, those that are missing: as root or through sudo; otherwise prints the line to run.
set -euo pipefail

missing=()
for package in "$@"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

line="apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
if ! command -v apt-get >/dev/null; then
    echo "install.sh: this is no Debian; install by your system's means: ${missing[*]}" >&2
    exit 1
fi
if [ "$(id -u)" = 0 ]; then
    as_root=()
elif sudo -n true 2>/dev/null; then
    as_root=(sudo -n)
else
    echo "install.sh: run this, then repeat: sudo sh -c '$line'" >&2
    exit 1
fi
echo "install.sh: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq >&2
# Another installation may hold the lock: it is waited for.
"${as_root[@]}" apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends "${missing[@]}" >&2
