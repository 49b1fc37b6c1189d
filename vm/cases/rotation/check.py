"""Two sets of events take turns: each is counted about half of the time, every sample names its set, and nothing is scaled."""
import json
import sys

ROUNDS, PER_ROUND = 60_000_000, 2

cases = dict(case.split("\n", 1) for case in sys.stdin.read().split("case ")[1:])


def readings(case):
    rows = [json.loads(line) for line in cases[case].splitlines() if line.startswith("{")]
    return [row for row in rows if row["kind"] == "reading"]


# Who has counted so long has run as long, whenever that is told.
for case in cases:
    ahead = {}
    for row in readings(case):
        ahead[row["set"]] = ahead.get(row["set"], 0) + row["enabled_ns"] - row["running_ns"]
        assert ahead[row["set"]] >= 0, row
sets = {0: "instructions:u", 1: "cycles:u"}
counted = {0: 0, 1: 0}
order = []
for row in readings("asked"):
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

# Metrics whose events are more than the PMU has counters: sets that fit take turns, and each metric is of one of them.
values = {"first": 1, "second": 1, "third": 4, "fourth": 1}
seen = {}
for row in readings("needed"):
    for name, value in row["metrics"].items():
        assert abs(value / values[name] - 1) < 0.001, row
        seen.setdefault(name, set()).add(row["set"])
assert seen.keys() == values.keys() and all(len(sets) == 1 for sets in seen.values()), seen
assert len(set.union(*seen.values())) > 1, seen
