"""Clamps follow the threads' core types, and are gone when another policy decides or the engine is killed."""
import sys

lines = dict(line.split(": ", 1) for line in sys.stdin.read().splitlines() if ": " in line)
# Two on the big CPUs, asked for all of it; two on the small ones, for no more than those have.
for when in ("hinted", "again"):
    assert lines[when].split() == "1 0 400 4 1 0 400 8 1 1024 1024 1 1 1024 1024 2".split(), lines
assert lines["journals"] == "1", lines
assert '"50ms"' in lines['  "period"'], lines
for when in ("let go", "killed"):
    assert lines[when].split() == ["4", "0", "1024", "f"], lines
assert lines["left"] == "0 cleanups: 0", lines
