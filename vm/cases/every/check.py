"""A reading each million instructions: overflow interrupts come when they should, and readings add up to the whole."""
import json
import sys

ROUNDS, PER_ROUND, EVERY = 5_000_000, 2, 1_000_000
# The emulated PMU asks for its interrupt by time, in which the kernel's instructions count as well: a little early.
SKID = 50_000

rows = [json.loads(line) for line in sys.stdin if line.startswith("{")]
readings = [row for row in rows if row["kind"] == "reading"]
counts = [row["counts"]["instructions:u"] for row in readings]
assert 0 <= sum(counts) - ROUNDS * PER_ROUND <= 60_000, (sum(counts), counts)
# The first and the last are begun and ended by the program's start and end.
due = sorted(count for count in counts if count > 0)
assert all(row["enabled_ns"] >= row["running_ns"] for row in readings), readings
assert abs(len(due) - ROUNDS * PER_ROUND // EVERY) <= 1, counts
assert abs(due[len(due) // 2] - EVERY) <= SKID, counts
