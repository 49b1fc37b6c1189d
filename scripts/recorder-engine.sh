#!/usr/bin/env bash
# Builds what programs are recorded under: QEMU's user emulation with plugins, from Debian's source package, into a cache folder.
# scripts/recorder-engine.sh [--unless-here] [ARCHITECTURE...] builds qemu-ARCHITECTURE (this machine's; aarch64 and x86_64 are known),
# if it is not there, and prints the folder. With --unless-here nothing is built where the machine's own qemu-user takes plugins, as
# Debian 12's does; there it is installed.
# Nothing else is installed but a compiler and python3: other tools and headers are unpacked below the cache folder while it builds.
# apt checks the source's checksums and their signature. The programs need the C library alone: GLib is inside.
set -euo pipefail

release=trixie series=1:10.0.
here=$(uname -m)
unless_here=no
[ "${1:-}" != --unless-here ] || { unless_here=yes; shift; }
[ $# -gt 0 ] || set -- "$here"
fail() { echo "recorder-engine.sh: $1" >&2; exit 1; }
for arch in "$@"; do case $arch in x86_64 | aarch64) ;; *) fail "no programs for \`$arch\` are recorded: x86_64 and aarch64 are known" ;; esac; done

# Whether every architecture asked for can be recorded by programs of this machine's own.
takes_plugins() {
    local arch
    for arch in "$@"; do
        [[ $("qemu-$arch" -h 2>/dev/null) == *$'\n-plugin'* ]] || return 1
    done
}

scripts=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/countersteer/recorder
# Another version of this file builds anew.
version=$(sha256sum "$0" | cut -c 1-12)
missing() {
    local arch
    for arch in "$@"; do [ -e "$cache/complete-$arch-$version" ] || echo "$arch"; done
}
mapfile -t wanted < <(missing "$@")
[ ${#wanted[@]} -gt 0 ] || { echo "$cache"; exit 0; }
if [ $unless_here = yes ]; then
    takes_plugins "$@" && exit 0
    if [[ $(apt-cache policy qemu-user 2>/dev/null) == *'Candidate: 1:7.2'* ]]; then
        "$scripts/install.sh" qemu-user && takes_plugins "$@" && exit 0
    fi
fi

command -v apt-get >/dev/null || fail "building needs apt-get, which only Debian and its kin have; a Debian package or wheel of Countersteer brings the engine"
"$scripts/install.sh" gcc libc6-dev pkg-config python3 xz-utils ||
    fail "without these the engine cannot be built; a Debian package (\`make deb\`) or wheel (\`make wheel\`) of Countersteer, made elsewhere, brings it"
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
mapfile -t wanted < <(missing "$@")
[ ${#wanted[@]} -gt 0 ] || { echo "$cache"; exit 0; }
work=$cache/build
rm -rf "$work"
mkdir -p "$work"
trap 'rm -rf "$work"' EXIT

# apt with its state in a folder of the build: apt_in own|FILE COMMAND ARGUMENTS
apt_in() {
    local sources=$1 state=$work/apt-${1##*/}
    mkdir -p "$state/lists/partial" "$state/archives/partial" "$work/none"
    local own=(-o Dir::State="$state" -o Dir::State::status=/var/lib/dpkg/status -o Dir::Cache="$state")
    [ "$sources" = own ] || own+=(-o Dir::Etc::sourcelist="$sources" -o Dir::Etc::sourceparts="$work/none")
    own+=(-o Dir::Etc::preferencesparts="$work/none" -o Acquire::Languages=none -o Debug::NoLocking=true -o APT::Sandbox::User=root)
    "$2" -qq "${own[@]}" "${@:3}"
}

echo "recorder-engine.sh: building the recorder's QEMU for ${wanted[*]} in $cache: fetches 60 MB, needs 600 MB meanwhile, takes minutes" >&2
archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m 1 -E '/debian/?$') ||
    fail "no Debian archive among this machine's package sources"
keys=signed-by=/usr/share/keyrings/debian-archive-keyring.gpg
printf '%s\n' "deb [$keys] $archive $release main" "deb-src [$keys] $archive $release main" >"$work/source"
cd "$work"
apt_in "$work/source" apt-get update >&2
# QEMU wants a newer meson than some releases have.
apt_in "$work/source" apt-get download meson python3-pycotap python3-distlib >&2
apt_in "$work/source" apt-get source --download-only qemu >&2
description=$(echo qemu_*.dsc)
found=$(sed -n 's/^Version: //p' "$description")
case $found in "$series"*) ;; *) fail "$release has QEMU $found now, not ${series#*:}x" ;; esac
# GLib has to fit this machine's C library.
apt_in own apt-get update >&2
apt_in own apt-get download libglib2.0-dev libpcre2-dev zlib1g-dev ninja-build >&2
for package in *.deb; do dpkg-deb -x "$package" "$work/tools"; done
# Only the archives are left for the linker, and what they need is said to be needed.
find "$work/tools" -name 'lib*.so' -delete
find "$work/tools" -name '*.pc' -exec sed -i 's/^Requires.private:/Requires:/' {} +
mkdir "$work/qemu" "$work/make"
tar -xf qemu_*.orig.tar.xz -C "$work/qemu" --strip-components 1
# Mappings of the program follow each other, as before QEMU 8.2. Since then the kernel places them beside those of QEMU's own threads, so that
# their addresses differ from run to run.
mapping=$work/qemu/linux-user/mmap.c
sed -i '/^static abi_long target_mmap__locked/,/^}/ s/^    if (reserved_va) {$/    if (reserved_va || !(flags \& (MAP_FIXED | MAP_FIXED_NOREPLACE))) {/' "$mapping"
grep -q '^    if (reserved_va || ' "$mapping" || fail "linux-user/mmap.c of QEMU $found is not as expected"

targets=$(printf '%s-linux-user,' "${wanted[@]}")
export PATH=$work/tools/usr/bin:$PATH PYTHONPATH=$work/tools/usr/lib/python3/dist-packages
# The tools that were unpacked are Python programs, and headers and libraries lie below the build's folder.
export PKG_CONFIG_SYSROOT_DIR=$work/tools PKG_CONFIG_LIBDIR=$work/tools/usr/lib/$(gcc -print-multiarch)/pkgconfig:$work/tools/usr/share/pkgconfig
cd "$work/make"
log=$cache/build.log
{ ../qemu/configure --python=/usr/bin/python3 --target-list="${targets%,}" --without-default-features --disable-install-blobs \
    --disable-system --disable-docs --disable-tools --disable-guest-agent --enable-linux-user --enable-plugins --enable-tcg && nice ninja "${wanted[@]/#/qemu-}"; } >"$log" 2>&1 || { tail -n 20 "$log" >&2; fail "the build failed; all of its output is in $log"; }

{
    echo "The programs qemu-* beside this file are QEMU $found (https://www.qemu.org), under the GNU General Public License, version 2,"
    echo "with GLib, PCRE2 and zlib inside. They are programs of their own, which steer starts. Their complete source is Debian's source package"
    echo "of this version (files and their SHA-256 below), with one line of linux-user/mmap.c changed and built by scripts/recorder-engine.sh of"
    echo "Countersteer's source."
    echo "Whoever gives these programs on gives this source on as well, or on request, for at least three years."
    cd "$work" && sha256sum qemu_*.orig.tar.xz "$description" && printf '%s\n' libglib2.0-dev_* libpcre2-dev_* zlib1g-dev_*
} >"$cache/qemu-source.txt"
for arch in "${wanted[@]}"; do
    strip -o "$cache/qemu-$arch.new" "$work/make/qemu-$arch"
    mv "$cache/qemu-$arch.new" "$cache/qemu-$arch"
    touch "$cache/complete-$arch-$version"
done
echo "$cache"
