"""Attaching to ten thousand threads: root counts them by counters of their own, for which it raises the limit of open files, and by
BPF programs, which see each of them end, and leave nobody out of a look at all processes. A CPU that was offline is counted again."""
import json
import sys

THREADS = 10_000

lines = sys.stdin.read().splitlines()
assert any(line.startswith(f"ready {THREADS}") for line in lines), lines
words = [line.split() for line in lines]
codes = {word[0]: int(word[1]) for word in words if word and word[0] in ["always", "never", "limited"]}
assert codes == {"always": 0, "never": 0, "limited": 0}, codes
ends = [json.loads(line) for line in lines if line.startswith("{")]
assert len(ends) == 2, lines
for end in ends:
    assert end["kind"] == "end" and end["records_lost"] == 0, end
# Without counters of their own there is room for everybody.
left_out = {word[1]: int(word[2]) for word in words if word and word[0] == "top"}
assert left_out == {"always": 0, "never": 1}, left_out
# The first thread ran when it was killed, and so did all others.
distinct = next(int(line) for line in lines if line.isdigit())
assert distinct == THREADS + 1, distinct
for way in ("by-cpu", "by-bpf"):
    before, after = next(map(int, word[2:]) for word in words if word[:2] == ["back", way])
    assert before > 1_000 and after > 1_000, (way, before, after)
