#!/usr/bin/env bash
# Fetches the QEMU of Debian's stable release, with the C library that it needs, into the cache folder of fetch.sh and prints where it lies.
# From 8.1 on, the CPUs of a machine that counts instructions take turns of equal length; before, one could run for milliseconds while
# the others stood still.
set -euo pipefail
cache=$("$(dirname "$0")/fetch.sh")/turns
[ ! -e "$cache/complete-2" ] || { echo "$cache"; exit 0; }
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
[ ! -e "$cache/complete-2" ] || { echo "$cache"; exit 0; }
echo "fetch-turns.sh: fetching a later QEMU into $cache (about 100 MB)" >&2
archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m 1 -E '/debian/?$') ||
    { echo "fetch-turns.sh: no Debian archive among this machine's package sources" >&2 && exit 1; }
mkdir -p "$cache/lists/partial" "$cache/archives/partial" "$cache/none" "$cache/root"
echo "deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive stable main" >"$cache/stable.list"
# As if nothing were installed: the C library comes along.
: >"$cache/status"
own=(-o Dir::State="$cache" -o Dir::State::lists="$cache/lists" -o Dir::State::status="$cache/status" -o Dir::Cache="$cache"
    -o Dir::Cache::archives="$cache/archives" -o Dir::Etc::sourcelist="$cache/stable.list" -o Dir::Etc::sourceparts="$cache/none"
    -o Dir::Etc::preferencesparts="$cache/none" -o Acquire::Languages=none -o Debug::NoLocking=true -o APT::Sandbox::User=root)
apt-get "${own[@]}" -qq update >&2
apt-get "${own[@]}" -qq -y --no-install-recommends --download-only install qemu-system-x86 qemu-system-arm >&2
for package in "$cache"/archives/*.deb; do dpkg-deb -x "$package" "$cache/root"; done
rm -rf "$cache/archives" "$cache/lists"
touch "$cache/complete-2"
echo "$cache"
