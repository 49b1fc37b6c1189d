"""Two sets of events take turns: each is counted about half of the time, every sample names its set, and nothing is scaled."""
import json
import sys

ROUNDS, PER_ROUND = 60_000_000, 2

cases = dict(case.split("\n", 1) for case in sys.stdin.read().split("case ")[1:])


def readings(case):
    rows = [json.loads(line) for line in cases[case].splitlines() if line.startswith("{")]
    return [row for row in rows if row["kind"] == "reading"]


# Who has counted so long has run as long, whenever it is read.
for case in cases:
    ahead = {}
    for row in readings(case):
        ahead[row["set"]] = ahead.get(row["set"], 0) + row["enabled_ns"] - row["running_ns"]
        assert ahead[row["set"]] >= 0, row

SETS = {0: "instructions:u", 1: "cycles:u"}
TOTAL = ROUNDS * PER_ROUND
# Metrics whose events are more than the PMU has counters: sets that fit take turns, and each metric is of one of them.
VALUES = {"first": 1, "second": 1, "third": 4, "fourth": 1}


def check(bpf):
    counted = {0: 0, 1: 0}
    order = []
    for row in readings(f"{bpf} asked"):
        assert list(row["counts"]) == [SETS[row["set"]]], row
        counted[row["set"]] += row["counts"][SETS[row["set"]]]
        order.append(row["set"])
    # On the one CPU, who rotates the sets competes with who is counted.
    assert 0.25 < counted[0] / TOTAL < 0.75, (bpf, counted)
    # Four nanoseconds an instruction: what the other set missed is what this one counted.
    both = counted[0] + counted[1] / 4
    assert abs(both / TOTAL - 1) < 0.02, (bpf, counted, both)
    assert order.count(0) > 15 and order.count(1) > 15, (bpf, order)
    seen = {}
    for row in readings(f"{bpf} needed"):
        for name, value in row["metrics"].items():
            assert abs(value / VALUES[name] - 1) < 0.001, (bpf, row)
            seen.setdefault(name, set()).add(row["set"])
    assert seen.keys() == VALUES.keys() and all(len(sets) == 1 for sets in seen.values()), (bpf, seen)
    assert len(set.union(*seen.values())) > 1, (bpf, seen)


for bpf in ["always", "never"]:
    check(bpf)
