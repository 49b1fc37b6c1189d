"""The scheduler in the kernel for all threads of the machine: forks, a crowd, control groups."""
from printed import is_placed, lines, summaries, text

for run, least in zip(summaries("storm"), (401, 201), strict=True):
    (program,) = run["programs"]
    seen = program["threads"] + (run["short_lived"] or {}).get("threads", 0)
    assert program["exit_code"] == 0 and seen >= least and run["refused"] == 0, run
(run,) = summaries("crowded")
assert run["programs"][0]["exit_code"] == 0 and all(s > 0 for s in run["programs"][0]["cpu_s"]), run
assert is_placed(run), run["misplaced"]
cgroup = lines("cgroup")
assert cgroup["state"] == "enabled" and cgroup["state after"] == "disabled", cgroup
assert set(cgroup["placed"].split()) <= {"2", "3"} and cgroup["narrow"].split() == ["0"], cgroup
assert set(cgroup["placed again"].split()) <= {"2", "3"}, cgroup
assert "ended the scheduler" not in text, text
