"""Placements are kept, policies are exchanged while threads run, and what others do is respected."""
import json
import sys

text = sys.stdin.read()
cases = dict(case.split("\n", 1) for case in text.split("case ")[1:])


def summary(body):
    return json.loads(body[body.index("{"):body.rindex("}") + 1])


for threads in (4, 16):
    run = summary(cases[f"equal-shares {threads}"])
    wrong, observed = run["misplaced"]
    # BPF programs tell one sample of a period for each core type on which a thread ran; four threads change places nearly all the time.
    assert wrong <= 0.01 * observed and (observed > 20 or threads == 4), (threads, run["misplaced"])
    big, small = run["programs"][0]["cpu_s"]
    assert run["programs"][0]["threads"] >= threads and big > 0 and small > 0, run["programs"]
    assert run["refused"] == 0, run

lines = dict(line.split(": ", 1) for line in cases["swap"].splitlines() if line.count(": ") == 1 and line[0] != " ")
assert lines["masks before"].split() == ["4", "3"], lines
# Two periods after the swap.
assert lines["masks after"].split() == ["4", "c"], lines
assert lines["why"] == "small", lines
# A rival is shown while it is there. Only one mask was set by another program: that of a CPU which went offline counts as before.
assert lines["rivals"] == '["gamemoded(PID)","CPUs3offline"] 1', lines
# One thread has the mask that somebody else gave it; the others are as free as they were.
assert lines["masks paused"].split() == ["1", "1", "3", "f"], lines
# A program that another thread than its process's first one has started is the same process, steered on.
assert lines["masks become"].split() == ["1", "c"], lines
assert lines["masks became"].split() == ["1", "3"], lines
assert lines["left"] == "0", lines
