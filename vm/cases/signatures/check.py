"""A signature beside a binary, or inside it, decides where its processes are before anything about them was measured."""
import sys

text = sys.stdin.read()
lines = dict(line.split(": ", 1) for line in text.splitlines() if line.count(": ") == 1)
for when in ("without", "forgotten"):
    assert lines[when].split() == ["4", "3", "2", "c"], text
# On a slow machine a copy may be seen before it was executed, while it is still a shell; it then keeps its place.
for when in ("beside", "inside"):
    assert lines[when].split() in (["3", "3", "3", "c"], ["2", "3", "4", "c"]), text
