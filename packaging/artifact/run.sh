#!/usr/bin/env bash
# Checks every claim, offline: run.sh [NAME ...]. Needs Python from 3.11 on with venv; writes into this folder alone.
set -euo pipefail
cd "$(dirname "$0")"
[ -x venv/bin/steer ] || {
    python3 -m venv venv
    venv/bin/pip install --quiet --disable-pip-version-check --no-index --find-links wheels countersteer
}
PATH=$PWD/venv/bin:$PATH exec python3 check.py claims.toml "$@"
