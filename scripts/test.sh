#!/usr/bin/env bash
# Runs everything that must pass, as jobs: scripts/test.sh [JOB...]
# A job that fails does not stop the others. The end shows which tests could not run here, and why, and what each job came to.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO=${CARGO:-cargo} COUNTERSTEER_SKIPPED
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
mkdir -p "$target"
COUNTERSTEER_SKIPPED=$target/skipped
rm -f "$COUNTERSTEER_SKIPPED"

words() { scripts/words; }
format() { "$CARGO" fmt --all --check; }
clippy() { "$CARGO" clippy --workspace --all-targets --quiet -- -D warnings; }
doc() { RUSTDOCFLAGS="-D warnings" "$CARGO" doc --workspace --no-deps --quiet; }
rust() { "$CARGO" test --workspace --quiet --no-fail-fast 2>&1; }
# The recorder's own QEMU comes after the tests that record under the system's. Then both are compared, and it is in the wheel that is tested.
engines() {
    if scripts/recorder-engine.sh >/dev/null; then
        "$CARGO" test --workspace --quiet --test engines 2>&1
    else
        . scripts/skip.sh engines
        skip "the recorder's QEMU cannot be built here (see above)"
    fi
}
python() { python/test.sh; }
distributions() {
    "$CARGO" build --quiet -p countersteer-capture
    scripts/test-distributions.sh "$target/debug"
}
vm() { vm/test.sh; }
# The next two run only when they are named.
oldest() {
    local version
    version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    # BPF skeletons are formatted as they are built.
    rustup toolchain install "$version" --profile minimal --component rustfmt 2>/dev/null
    CARGO_TARGET_DIR=$target/oldest rustup run "$version" cargo check --workspace --locked --quiet
}
deny() {
    . scripts/skip.sh deny
    command -v cargo-deny >/dev/null || skip "cargo-deny is missing: cargo install --locked cargo-deny"
    "$CARGO" deny check
}

all=(words format clippy doc rust engines python distributions vm)
for job in "$@"; do
    [[ " ${all[*]} oldest deny " = *" $job "* ]] || { echo "test.sh: there is no job \`$job\`: ${all[*]} oldest deny" >&2 && exit 2; }
done
[ $# -gt 0 ] || set -- "${all[@]}"
# What virtual machines need is fetched meanwhile.
[[ " $* " != *" vm "* ]] || vm/fetch.sh >/dev/null 2>&1 &
results=() failed=0
for job in "$@"; do
    SECONDS=0 result=ok
    # In a list or a condition `set -e` would not hold inside the job.
    set +e
    (set -e; "$job")
    status=$?
    set -e
    [ $status = 0 ] || result="FAILED (exit code $status)" failed=1
    results+=("job $job ... $result <${SECONDS}s>")
done
[ ! -s "$COUNTERSTEER_SKIPPED" ] || sort -u "$COUNTERSTEER_SKIPPED"
printf '%s\n' "${results[@]}"
passed=$(printf '%s\n' "${results[@]}" | grep -c ' ok <' || true)
echo "jobs: $passed passed, $(($# - passed)) failed"
exit $failed
