"""The scheduler in the kernel: threads are stolen when that is wanted, and only then; sets of CPUs come and go."""
from printed import cases, lines, summaries

stealing = lines("stealing")
assert stealing["placed"].split() == ["0"] and stealing["never"] == "0", stealing
assert len(stealing["above 2"].split()) > 1 and stealing["placed again"].split() == ["0"], stealing
runs = summaries("stealing")
assert len(runs) == 2 and all(run["stolen"] > 0 for run in runs), runs

# A set of CPUs that nobody is placed on makes room for another; where there is none, placements are refused.
recycled = lines("recycled")
for cpus, may in {"1": "1", "2": "2", "3": "3", "0-1": "0 1", "2-3": "2 3"}.items():
    assert set(recycled[f"on {cpus}"].split()) <= set(may.split()), recycled
(run,) = summaries("recycled")
assert run["refused"] == 0, run
(run,) = summaries("crowded")
assert run["refused"] > 0 and run["programs"][0]["exit_code"] == 7, run
assert "threads cannot be placed on CPUs 2-3" in cases["crowded"], cases["crowded"]
