"""The scheduler in the kernel: placements, forks, exchanges, hotplug, control groups."""
from printed import cases, is_placed, lines, summaries

for threads in (4, 16):
    (run,) = summaries(f"equal-shares {threads}")
    assert is_placed(run), (threads, run["misplaced"])
    big, small = run["programs"][0]["cpu_s"]
    assert run["programs"][0]["threads"] >= threads and big > 0 and small > 0, run["programs"]
    assert run["refused"] == 0 and run["stolen"] == 0, run

crowd, shells = summaries("many forks")
assert crowd["programs"][0]["exit_code"] == 0, crowd
seen = crowd["programs"][0]["threads"] + (crowd["short_lived"] or {}).get("threads", 0)
assert seen >= 401, seen
seen = shells["programs"][0]["threads"] + (shells["short_lived"] or {}).get("threads", 0)
assert seen >= 101, seen
assert "code: 7" in cases["many forks"], cases["many forks"]

swap = lines("swap")
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
assert all(run["stolen"] == 0 for run in summaries("swap")), cases["swap"]
