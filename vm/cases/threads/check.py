"""Where threads wait for each other and two CPUs are slow, the search finds the CPUs on which the program is fastest by exhaustive runs."""
import json
import statistics
import sys

lines = sys.stdin.read().splitlines()
found = json.loads(next(line for line in lines if line.startswith("found: "))[len("found: "):])
times = {}
for line in lines:
    if line.startswith("time: "):
        cpus, begun, ended = line.split()[1:]
        times.setdefault(cpus, []).append(float(ended) - float(begun))
times = {cpus: statistics.median(runs) for cpus, runs in times.items()}
best = min(times, key=times.get)
# Slow CPUs have two fifths of the speed: two fast ones alone are best, and four threads wait for the slow ones.
assert best == "0-1" and times["0-3"] > 1.1 * times[best], times
# Where the CPUs were idle for some of the time, the best candidate runs with more threads, too: these runs have no prediction.
searched = [trial for nth, trial in enumerate(found["trials"]) if nth == 0 or trial["predicted"]]
assert len(searched) <= 5, found
first = found["finals"][found["recommended"] or 0]
assert times[first["cpus"]] <= 1.03 * times[best], (first, times)
assert first["threads"] == 2, first
# On a host that is busy for a while, the interval becomes wide, and nothing is recommended.
low, high = first["gain"]["interval"]
faster = found["recommended"] is not None and first["gain"]["verdict"] == "faster"
assert faster or low <= 0 < times["0-3"] / times[best] - 1 <= high, found
