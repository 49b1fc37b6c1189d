"""A control group with a program in it and one beside it: what is counted is the group's CPU time, as the kernel's own files have it."""
import json
import sys

lines = sys.stdin.read().splitlines()
usage = next(int(line.split()[2]) for line in lines if line.startswith("group usage_usec"))
rows = [json.loads(line) for line in lines if line.startswith("{")]
by_cpu = [json.loads(line.split(" ", 1)[1]) for line in lines if line.startswith("by-cpu {")]
total = sum(row["counts"]["task_clock"] for row in rows if row["kind"] == "reading") / 1e3
# Some kernels keep no counters for groups before any controller is in use.
early = [line for line in lines if line.startswith("early steer:")]
assert all("cgroup.subtree_control" in line for line in early), early
assert usage > 100_000, usage
# Emulated, the group is entered and left a little before or after it is accounted for.
assert abs(total / usage - 1) < 0.1, (total, usage)
assert all(row["tid"] is None for row in rows if row["kind"] == "reading"), "a group has no threads of its own"
each = sum(row["counts"]["task_clock"] for row in by_cpu if row["kind"] == "reading") / 1e3
assert abs(each / usage - 1) < 0.1, (each, usage)
assert {row["cpu"] for row in by_cpu if row["kind"] == "reading"} == {0, 1}, by_cpu
