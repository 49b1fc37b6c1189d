"""After many kills of the scheduler's process no thread has its scheduling policy still."""
import sys

lines = sys.stdin.read().splitlines()
# Before each kill there were threads that had it.
assert "kills: 6 given: 6 wrong: 0 left: 0" in lines, lines
