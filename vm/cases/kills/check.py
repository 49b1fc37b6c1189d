"""After many kills nothing is left confined."""
import sys

lines = sys.stdin.read().splitlines()
assert "kills: 10 wrong: 0 left: 0" in lines, lines
# There was something to look at: a shell and three that it started, at least.
assert int(lines[-1].split()[1]) >= 40, lines
