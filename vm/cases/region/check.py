"""A C program counts around its loop over pages: each page more is a fault and the same few instructions more."""
import sys

PAGES = [1000, 2000, 3000]
# What the library adds to a region: built without optimisation here.
MOST_BESIDES = 20_000

runs = []
for line in sys.stdin:
    name, core_type, value, *unit = line.split()
    assert core_type == "-", line
    if name == "instructions:u":
        runs.append({})
    runs[-1][name] = int(value)

# One more may be the stack's.
assert all(0 <= run["page_faults"] - pages < 5 for pages, run in zip(PAGES, runs, strict=True)), runs
first, second, third = (run["instructions:u"] for run in runs)
per_page = (second - first) / 1000
assert second - first == third - second and per_page in range(3, 10), runs
for pages, run in zip(PAGES, runs):
    assert 0 < run["instructions:u"] - per_page * pages < MOST_BESIDES, runs
    # This machine's clock ticks once in four nanoseconds, that is per instruction, and its PMU counts nanoseconds.
    assert run["cycles:u"] == 4 * run["instructions:u"], runs
    assert run["task_clock"] > run["cycles:u"], runs
