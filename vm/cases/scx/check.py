"""The scheduler in the kernel: placements, exchanges, hotplug, control groups, births; it goes when its process does."""
import json
import sys

text = sys.stdin.read()
cases = dict(case.split("\n", 1) for case in text.split("case ")[1:])


def summaries(body):
    decoder, found, at = json.JSONDecoder(), [], body.find("{\n")
    while at >= 0:
        value, length = decoder.raw_decode(body[at:])
        found.append(value)
        at = body.find("{\n", at + length)
    return found


def lines(body):
    return dict(line.split(": ", 1) for line in body.splitlines() if ": " in line and line[0] not in " [{}")


for threads in (4, 16):
    (run,) = summaries(cases[f"equal-shares {threads}"])
    wrong, told = run["misplaced"]
    assert told > 20 and wrong <= 0.01 * told, (threads, run["misplaced"])
    big, small = run["programs"][0]["cpu_s"]
    assert run["programs"][0]["threads"] >= threads and big > 0 and small > 0, run["programs"]
    assert run["refused"] == 0, run

crowd, shells = summaries(cases["many births"])
assert crowd["programs"][0]["exit_code"] == 0, crowd
seen = crowd["programs"][0]["threads"] + (crowd["short_lived"] or {}).get("threads", 0)
assert seen >= 401, seen
seen = shells["programs"][0]["threads"] + (shells["short_lived"] or {}).get("threads", 0)
assert seen >= 101, seen
assert "code: 7" in cases["many births"], cases["many births"]

swap = lines(cases["swap"])
assert swap["state"] == "enabled", swap
assert set(swap["before"].split()) <= {"0", "1"}, swap
assert set(swap["after"].split()) <= {"2", "3"}, swap
assert swap["why"] == "small", swap
assert swap["offline"].split() == ["2"], swap
# Without a CPU of its target a thread runs anywhere.
assert set(swap["all offline"].split()) <= {"0", "1"}, swap
assert set(swap["online"].split()) <= {"2", "3"}, swap
assert swap["cgroup"].split() == ["0"], swap
assert swap["state after"] == "disabled", swap

stealing = lines(cases["stealing"])
assert stealing["placed"].split() == ["0"] and stealing["never"] == "0", stealing
assert len(stealing["above 2"].split()) > 1 and stealing["placed again"].split() == ["0"], stealing
runs = summaries(cases["stealing"])
assert len(runs) == 2 and all(run["stolen"] > 0 for run in runs), runs
assert all(run["stolen"] == 0 for case in ("equal-shares 4", "swap") for run in summaries(cases[case])), cases

# A set of CPUs that nobody is placed on makes room for another; where there is none, placements are refused.
recycled = lines(cases["recycled"])
for cpus, may in {"1": "1", "2": "2", "3": "3", "0-1": "0 1", "2-3": "2 3"}.items():
    assert set(recycled[f"on {cpus}"].split()) <= set(may.split()), recycled
(run,) = summaries(cases["recycled"])
assert run["refused"] == 0, run
(run,) = summaries(cases["crowded"])
assert run["refused"] > 0 and run["programs"][0]["exit_code"] == 7, run
assert "threads cannot be placed on CPUs 2-3" in cases["crowded"], cases["crowded"]

for run, least in zip(summaries(cases["full storm"]), (401, 201), strict=True):
    (program,) = run["programs"]
    seen = program["threads"] + (run["short_lived"] or {}).get("threads", 0)
    assert program["exit_code"] == 0 and seen >= least and run["refused"] == 0, run
(run,) = summaries(cases["full crowded"])
wrong, told = run["misplaced"]
assert run["programs"][0]["exit_code"] == 0 and all(s > 0 for s in run["programs"][0]["cpu_s"]), run
assert told > 20 and wrong <= 0.01 * told, run["misplaced"]
full = lines(cases["full cgroup"])
assert full["state"] == "enabled" and full["state after"] == "disabled", full
assert set(full["placed"].split()) <= {"2", "3"} and full["narrow"].split() == ["0"], full
assert set(full["placed again"].split()) <= {"2", "3"}, full
assert "ended the scheduler" not in text[text.index("case full storm"):text.index("case killed")], text

killed = lines(cases["killed"])
assert killed["killed"] == "disabled" and killed["alive"] == "16", killed
assert set(killed["where"].split()) == {"0", "1", "2", "3"}, killed

ejected = lines(cases["ejected"])
assert ejected["ejected"] == "disabled", ejected
# Masks have taken over.
assert ejected["masks"].split() == ["c"], ejected

watchdog = lines(cases["watchdog"])
assert "ended the scheduler" in cases["watchdog"], cases["watchdog"]
assert watchdog["state at the end"] == "disabled", watchdog
(run,) = summaries(cases["watchdog"])
assert run["programs"][0]["exit_code"] == 0, run
