#!/usr/bin/env bash
# Fetches what the virtual machines need (QEMU, kernels, busybox, libraries of another processor) into a cache folder and prints that folder.
# Nothing is installed: packages are unpacked there, with a package database of their own. Kernels come from the newest
# release of the archive that this machine's own package sources name; QEMU from this machine's own release.
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
    local own=(-o Dir::State="$state" -o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$state")
    [ "$sources" = own ] || own+=(-o Dir::Etc::sourcelist="$sources" -o Dir::Etc::sourceparts="$state/none")
    own+=(-o Dir::Etc::preferencesparts="$state/none" -o Acquire::Languages=none -o Debug::NoLocking=true -o APT::Sandbox::User=root)
    "${@:1:1}" "${own[@]}" "${@:2}"
}

echo "fetch.sh: fetching QEMU and kernels into $cache (about 150 MB)" >&2
archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m 1 -E '/debian/?$') || {
    echo "fetch.sh: no Debian archive among this machine's package sources" >&2
    exit 1
}
newest=$cache/newest.list
echo "deb [arch=amd64,arm64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive sid main" >"$newest"
both=(-o APT::Architectures::=amd64 -o APT::Architectures::=arm64)

apt_in newest "$newest" apt-get "${both[@]}" -qq update >&2
for arch in amd64 arm64; do
    # The package's name holds the version, which moves on.
    kernel=$(apt_in newest "$newest" apt-cache "${both[@]}" search --names-only "^linux-binary-[0-9].*-cloud-$arch$" |
        cut -d' ' -f1 | sort -V | tail -n 1)
    [ -n "$kernel" ] || { echo "fetch.sh: $archive has no kernel image for $arch" >&2; exit 1; }
    rm -rf "${cache:?}/$arch" "$cache/unpack"
    mkdir -p "$cache/$arch" "$cache/unpack"
    (cd "$cache/unpack" && apt_in newest "$newest" apt-get "${both[@]}" -qq download "$kernel:$arch" "busybox-static:$arch" >&2)
    for package in "$cache"/unpack/*.deb; do dpkg-deb -x "$package" "$cache/unpack"; done
    # Kernels moved from /boot to below /usr/lib/modules.
    cp "$(find "$cache/unpack" -name 'vmlinuz*' -type f | head -n 1)" "$cache/$arch/vmlinuz"
    cp "$(find "$cache/unpack" -path '*/bin/busybox' -type f | head -n 1)" "$cache/$arch/busybox"
done

apt_in host own apt-get -qq update >&2
apt_in host own apt-get -qq -y --no-install-recommends --download-only install qemu-system-x86 qemu-system-arm >&2
mkdir -p "$cache/qemu"
for package in "$cache"/apt/host/archives/*.deb; do dpkg-deb -x "$package" "$cache/qemu"; done
# What the scheduler in the kernel is loaded with, for programs that are built here for arm64.
release=$cache/release.list
suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
echo "deb [arch=arm64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $archive ${suite:-sid} main" >"$release"
apt_in release "$release" apt-get "${both[@]}" -qq update >&2
rm -rf "${cache:?}/arm64/dev" "$cache/unpack"
mkdir -p "$cache/arm64/dev" "$cache/unpack"
(cd "$cache/unpack" && apt_in release "$release" apt-get "${both[@]}" -qq download libelf-dev:arm64 zlib1g-dev:arm64 >&2)
for package in "$cache"/unpack/*.deb; do dpkg-deb -x "$package" "$cache/arm64/dev"; done
rm -rf "$cache/apt" "$cache/unpack"
touch "$stamp"
echo "$cache"
