"""Counters that the scheduler in the kernel reads: the loop's instructions, two a round, and little else."""
import json
import sys

cases = dict(case.split("\n", 1) for case in sys.stdin.read().split("case ")[1:])


def program(body):
    return json.JSONDecoder().raw_decode(body[body.index("{"):])[0]["programs"][0]


for loops in (1, 3):
    counted = program(cases[str(loops)])["instructions"]
    exact = loops * 2 * 100_000_000
    assert exact <= counted <= 1.04 * exact, (loops, counted)
by_masks = program(cases["affinity"])["instructions"]
by_scheduler = program(cases["3"])["instructions"]
assert abs(by_masks / by_scheduler - 1) < 0.03, (by_masks, by_scheduler)
