#!/usr/bin/env python3
"""Checks claims: check.py [CLAIMS.toml] [NAME ...]

Runs each claim's command, finds the value in its JSON, and prints a verdict for each. Exit code 1 if a claim does not hold, 3 if
the file cannot be understood.
"""

import json
import statistics
import subprocess
import sys
import time
import tomllib

REQUIRED = {"name", "claim", "command", "find", "minutes"}
KNOWN = REQUIRED | {"expected", "tolerance", "at_least"}


class Bad(Exception):
    """A claim that cannot be understood, or an answer without the value."""


def claims(path):
    """The claims of a file, each with all it needs."""
    with open(path, "rb") as file:
        found = tomllib.load(file).get("claim", [])
    for nth, claim in enumerate(found, 1):
        name = claim.get("name", f"claim {nth}")
        if missing := REQUIRED - claim.keys():
            raise Bad(f"{path}: {name} lacks {', '.join(sorted(missing))}")
        if unknown := claim.keys() - KNOWN:
            raise Bad(f"{path}: {name} has the unknown key {', '.join(sorted(unknown))}")
        if ("expected" in claim) == ("at_least" in claim):
            raise Bad(f"{path}: {name} needs either `expected` or `at_least`")
    if not found:
        raise Bad(f"{path}: there is no [[claim]]")
    return found


def value_of(answer, find):
    """What a claim is about, out of a command's JSON."""
    rows = answer[find["list"]] if "list" in find else answer
    rows = rows if isinstance(rows, list) else [rows]

    def middle(where):
        values = [row[find["field"]] for row in rows if where.items() <= row.items()]
        if not values:
            raise Bad(f"no row has {where}")
        numbers = not isinstance(values[0], (str, bool))
        return statistics.median(values) if numbers else values[0]

    value = middle(find.get("where", {}))
    return value / middle(find["over"]) if "over" in find else value


def holds(claim, value):
    """Whether a value is what a claim says."""
    if "at_least" in claim:
        return value >= claim["at_least"]
    if isinstance(claim["expected"], (str, bool)):
        return value == claim["expected"]
    return abs(value - claim["expected"]) <= claim.get("tolerance", 0)


def check(claim):
    """Runs a claim's command: whether it holds, and what was found."""
    run = subprocess.run(claim["command"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        return False, f"exit code {run.returncode}: {run.stderr.strip()[-300:]}"
    try:
        value = value_of(json.loads(run.stdout), claim["find"])
    except (Bad, KeyError, TypeError, ValueError) as error:
        return False, f"no such value in its answer: {error}"
    return holds(claim, value), value


def wanted_of(claim):
    if "at_least" in claim:
        return f"at least {claim['at_least']}"
    return f"{claim['expected']}" + (f" ± {claim['tolerance']}" if "tolerance" in claim else "")


def main(words):
    path, names = (words[0], words[1:]) if words else ("claims.toml", [])
    try:
        all_claims = claims(path)
    except (OSError, tomllib.TOMLDecodeError, Bad) as error:
        print(f"check: {error}", file=sys.stderr)
        return 3
    chosen = [c for c in all_claims if not names or c["name"] in names]
    if unknown := set(names) - {c["name"] for c in all_claims}:
        print(f"check: there is no claim {', '.join(sorted(unknown))}", file=sys.stderr)
        return 3
    minutes = sum(c["minutes"] for c in chosen)
    print(f"{len(chosen)} claims, some {minutes:.0f} minutes", file=sys.stderr)
    failed = 0
    for claim in chosen:
        begun = time.monotonic()
        ok, found = check(claim)
        failed += not ok
        found = f"{found:.4g}" if isinstance(found, float) else found
        print(f"{'holds' if ok else 'FAILS'}  {claim['name']}: {claim['claim']}")
        print(f"       found {found}, claimed {wanted_of(claim)}; {time.monotonic() - begun:.0f} s", flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} claims hold")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
