#!/usr/bin/env bash
# Fetches what the virtual machines need (QEMU, kernels, busybox, libraries of another processor) into a cache folder and prints that folder.
# Nothing is installed: packages are unpacked there, with a package database of their own. Kernels come from the newest
# release of the archive that this machine's own package sources name; QEMU from its stable release: from 8.1 on, the CPUs of a machine
# that counts instructions take turns of equal length; before, one could run on while the others stood still for a tenth of a second.
set -euo pipefail

cache=${COUNTERSTEER_VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/countersteer/vm}
# Another version of this file fetches anew.
stamp=$cache/complete-$(sha256sum "$0" | cut -c 1-12)
[ ! -e "$stamp" ] || { echo "$cache"; exit 0; }

for tool in apt-get dpkg-deb; do
    command -v $tool >/dev/null || { echo "fetch.sh: virtual machines need $tool, which only Debian and its kin have" >&2; exit 1; }
done
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
[ ! -e "$stamp" ] || { echo "$cache"; exit 0; }

# apt with its state in FOLDER: apt_in FOLDER SOURCES ARGS
apt_in() {
    local state=$cache/apt/$1 sources=$2
    shift 2
    mkdir -p "$state/lists/partial" "$state/archives/partial" "$state/none"
    local own=(-o Dir::State="$state" -o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$state"
        -o Dir::Etc::sourcelist="$sources" -o Dir::Etc::sourceparts="$state/none" -o Dir::Etc::preferencesparts="$state/none"
        -o Acquire::Languages=none -o Debug::NoLocking=true -o APT::Sandbox::User=root)
    "${@:1:1}" "${own[@]}" "${@:2}"
}

echo "fetch.sh: fetching QEMU and kernels into $cache (about 250 MB)" >&2
archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m 1 -E '/debian/?$') || {
    echo "fetch.sh: no Debian archive among this machine's package sources" >&2
    exit 1
}
both=(-o APT::Architectures::=amd64 -o APT::Architectures::=arm64)

# A release of the archive: release NAME
release() {
    echo "deb [arch=amd64,arm64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive $1 main" >"$cache/$1.list"
    apt_in "$1" "$cache/$1.list" apt-get "${both[@]}" -qq update >&2
}

# Packages of a release, unpacked into $cache/unpack: unpack RELEASE PACKAGE...
unpack() {
    local name=$1
    shift
    rm -rf "$cache/unpack"
    mkdir -p "$cache/unpack"
    (cd "$cache/unpack" && apt_in "$name" "$cache/$name.list" apt-get "${both[@]}" -qq download "$@" >&2)
    for package in "$cache"/unpack/*.deb; do dpkg-deb -x "$package" "$cache/unpack"; done
}

# A release's oldest kernel from VERSION on, or its newest: kernel RELEASE ARCH first|last VERSION FOLDER
kernel() {
    local name=$1 arch=$2 which=$3 version=$4 into=$cache/$5 found
    # The package's name holds the version, which moves on.
    found=$(apt_in "$name" "$cache/$name.list" apt-cache "${both[@]}" search --names-only "^linux-(image|binary)-[0-9].*-cloud-$arch$" |
        cut -d' ' -f1 | sed 's/^linux-[a-z]*-\(.*\)/\1 &/' | sort -V |
        while read -r found package; do
            # In later releases `image` only signs what is in `binary`.
            [ "$(printf '%s\n' "$version" "$found" | sort -V | head -n 1)" != "$version" ] || echo "$package"
        done)
    [ -n "$found" ] || { echo "fetch.sh: $archive has no kernel image for $arch in $name" >&2; exit 1; }
    if [ "$which" = last ]; then found=$(tail -n 1 <<<"$found"); else found=$(head -n 1 <<<"$found"); fi
    ! apt_in "$name" "$cache/$name.list" apt-cache "${both[@]}" show "${found/image/binary}:$arch" >/dev/null 2>&1 || found=${found/image/binary}
    unpack "$name" "$found:$arch"
    mkdir -p "$into"
    # Kernels moved from /boot to below /usr/lib/modules.
    cp "$(find "$cache/unpack" -name 'vmlinuz*' -type f | head -n 1)" "$into/vmlinuz"
}

# The newest kernel, the oldest under which the scheduler in the kernel is tried, and one that has no sched_ext.
release sid
release stable
release stable-backports
for arch in amd64 arm64; do
    rm -rf "${cache:?}/$arch"
    kernel sid $arch last 0 $arch
    unpack sid "busybox-static:$arch"
    cp "$(find "$cache/unpack" -path '*/bin/busybox' -type f | head -n 1)" "$cache/$arch/busybox"
done
kernel stable-backports amd64 first 6.16 amd64/oldest
kernel stable amd64 last 0 amd64/stable

# As if nothing were installed: the C library that this QEMU needs comes along.
: >"$cache/status"
apt_in stable "$cache/stable.list" apt-get -o Dir::State::status="$cache/status" \
    -qq -y --no-install-recommends --download-only install qemu-system-x86 qemu-system-arm >&2
rm -rf "$cache/qemu"
mkdir -p "$cache/qemu"
for package in "$cache"/apt/stable/archives/*.deb; do dpkg-deb -x "$package" "$cache/qemu"; done
# What the scheduler in the kernel is loaded with, for programs that are built here for arm64.
own=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
release "${own:-sid}"
unpack "${own:-sid}" libelf-dev:arm64 zlib1g-dev:arm64
rm -rf "${cache:?}/arm64/dev"
mkdir -p "$cache/arm64/dev"
cp -r "$cache/unpack/usr" "$cache/arm64/dev/usr"
rm -rf "$cache/apt" "$cache/unpack" "$cache/status"
touch "$stamp"
echo "$cache"
