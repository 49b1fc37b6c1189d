"""A signature beside a binary, or inside it, decides where its processes are before anything about them was measured."""
import sys

text = sys.stdin.read()
lines = dict(line.split(": ", 1) for line in text.splitlines() if line.count(": ") == 1)
for when in ("without", "forgotten"):
    assert lines[when].split() == ["4", "3", "2", "c"], text
for when in ("beside", "inside"):
    assert lines[when].split() == ["3", "3", "3", "c"], text
assert (lines["scx-without"], lines["scx-beside"]) == ("4", "3"), text
