#!/usr/bin/env bash
# Says in one line what a build with the engine inside the kernel lacks here. The C compiler would say it in a page.
set -euo pipefail
lacking=()
for header in gelf.h zlib.h; do
    echo "#include <$header>" | ${CC:-cc} -E - >/dev/null 2>&1 || lacking+=("$header")
done
compgen -c clang | grep -qE '^clang(-(19|2[0-9]))?$' || lacking+=(clang)
[ ${#lacking[@]} = 0 ] || {
    echo "the engine inside the kernel cannot be built without ${lacking[*]}: \`make setup\` installs what it needs, BPF=no leaves it out" >&2
    exit 1
}
