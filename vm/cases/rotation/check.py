"""Two sets of events take turns: each is counted about half of the time, every sample names its set, and nothing is scaled."""
import json
import sys

ROUNDS, PER_ROUND = 60_000_000, 2

rows = [json.loads(line) for line in sys.stdin if line.startswith("{")]
sets = {0: "instructions:u", 1: "cycles:u"}
counted = {0: 0, 1: 0}
order = []
for row in rows:
    if row["kind"] != "reading":
        continue
    assert list(row["counts"]) == [sets[row["set"]]], row
    counted[row["set"]] += row["counts"][sets[row["set"]]]
    order.append(row["set"])
total = ROUNDS * PER_ROUND
# On the one CPU, who rotates the sets competes with who is counted.
assert 0.25 < counted[0] / total < 0.75, counted
# Four nanoseconds an instruction: what the other set missed is what this one counted.
both = counted[0] + counted[1] / 4
assert abs(both / total - 1) < 0.02, (counted, both)
assert order.count(0) > 15 and order.count(1) > 15, order
