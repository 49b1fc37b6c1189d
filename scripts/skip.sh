# For tests that are scripts: `. scripts/skip.sh SUITE`, then `skipped REASON` says that a part cannot run here, `skip REASON` that none can.
# `COUNTERSTEER_SKIPPED` names a file that collects the reports, which `make test` shows at its end.
suite=$1
skipped() {
    echo "skipped: $suite: $1"
    [ -z "${COUNTERSTEER_SKIPPED:-}" ] || echo "skipped: $suite: $1" >>"$COUNTERSTEER_SKIPPED"
}
skip() {
    skipped "$1"
    exit 0
}
