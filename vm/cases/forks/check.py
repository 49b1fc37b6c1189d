"""A thousand forks a second, if the emulated machine keeps up: none is missed, no descriptor leaks, and memory stays flat.

Ten seconds of them instead of a minute: emulated, they take several times as long. Then the same for an ordinary user, of threads
that end on all CPUs at once, also where others with more right to the CPUs make them wait half-way through their ends."""
import json
import sys

FORKS = 10_000
root, ordinary = sys.stdin.read().split("ordinary\n")
runs = dict(run.split("\n", 1) for run in root.split("root ")[1:])
assert runs.keys() == {"always", "never"}, runs.keys()
for bpf, run in runs.items():
    lines = run.splitlines()
    print(bpf, next(line for line in lines if line.startswith("forks")), file=sys.stderr)
    samples = [tuple(map(int, line.split()[1:])) for line in lines if line.startswith("sample") and len(line.split()) == 3]
    distinct = next(int(line) for line in lines if line.isdigit())
    end = json.loads(lines[-1])
    assert end["threads_born"] == FORKS, (bpf, end)
    assert end["records_lost"] == 0, (bpf, end)
    # Each has rows of its own, and so has their parent.
    assert distinct >= FORKS + 1, (bpf, distinct)
    files, memory = [s[0] for s in samples[2:-2]], [s[1] for s in samples[2:-2]]
    assert len(files) > 4, (bpf, samples)
    assert max(files) == min(files), (bpf, files)
    third = len(memory) // 3
    assert memory[-1] < memory[third] * 1.1 + 1024, (bpf, memory)

ordinary, busy = ordinary.split("busy\n")
for forks, run in [(1500, ordinary), (400, busy)]:
    *_, ends, end = run.splitlines()
    end = json.loads(end)
    assert (end["user_only"], end["records_lost"], end["threads_born"]) == (True, 0, 4 * forks + 4), end
    # The shell ends besides.
    assert int(ends) == end["threads_born"] + 1, (forks, ends, end)
