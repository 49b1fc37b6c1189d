"""Threads counted beside the scheduler in the kernel: the loop's instructions, two a round, and little else."""
import json
import re
import sys

cases = dict(case.split("\n", 1) for case in sys.stdin.read().split("case ")[1:])


def program(body):
    return json.JSONDecoder().raw_decode(body[body.index("{"):])[0]["programs"][0]


# Where threads take turns, what the kernel does at the end of each slice is counted as theirs.
for loops, more in ((1, 1.04), (3, 1.1)):
    counted = program(cases[str(loops)])["instructions"]
    exact = loops * 2 * 100_000_000
    assert exact <= counted <= more * exact, (loops, counted)
by_masks = program(cases["affinity"])["instructions"]
by_scheduler = program(cases["3"])["instructions"]
assert abs(by_masks / by_scheduler - 1) < 0.06, (by_masks, by_scheduler)

# Once a thread has run for two periods, kernel and user space agree bit by bit: 1.25 + 0.5 - 0.0625.
def judged(case):
    return [line.split()[1:] for line in cases[case].splitlines() if line[0].isdigit()]


assert len(judged("judge")) > 10 and all(both == ["Some(1.6875)"] * 2 for both in judged("judge")[4:]), cases["judge"]

# Of two sets that take turns one alone knows the last feature, which adds 0.125: nothing is reported before both were seen.
assert {factor for both in judged("turns") for factor in both} <= {"None", "Some(1.8125)"}, cases["turns"]
assert len(judged("turns")) > 10 and all(both == ["Some(1.8125)"] * 2 for both in judged("turns")[6:]), cases["turns"]

# Counters that take each other's place, in other slots, lose nothing and mix nothing up.
def instructions(body):
    return float(re.search("^instructions (.*)", body, re.M)[1])


exact = 2 * 300_000_000
assert 0.97 * exact <= instructions(cases["judge"]) <= 1.04 * exact, cases["judge"]
assert 0.95 * exact <= instructions(cases["turns"]) <= 1.04 * exact, cases["turns"]
# Exchanging reads the running thread: that costs it a little in the kernel, and no count of it is lost or counted twice.
unchanged = instructions(cases["judge"])
assert 0.998 * unchanged <= instructions(cases["exchange"]) <= 1.02 * unchanged, (unchanged, cases["exchange"])
swap = cases["swap"]
swapped = program(swap[swap.index('{\n  "programs"'):])["instructions"]
assert 3 * exact <= swapped <= 3 * 1.04 * exact and '"50ms"' in swap and '"20ms"' in swap, swap
