#!/usr/bin/env python3
"""What the Python package costs, as rows of a table: python.py [MIXES], run by the Python that has the wheel installed.

Times are medians. Mixes are of 16 programs under one policy; what an hour would do is extrapolated from MIXES of them (200).
"""

import os
import subprocess
import sys
import tempfile
import time
from statistics import median

import numpy as np

import countersteer as cs

STEER = [sys.executable, "-m", "countersteer"]
RUNS = 1000
COMPARED = ("i9-12900k-8p8e", "unequal-cores")


def timed(run, times: int = 3) -> float:
    def once() -> float:
        began = time.perf_counter()
        run()
        return time.perf_counter() - began

    return median(once() for _ in range(times))


def seconds_of(code: str) -> float:
    """What a statement takes in a fresh interpreter."""
    text = f"import time; began = time.perf_counter(); {code}; print(time.perf_counter() - began)"
    return float(subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout)


@cs.policy
class Stays:
    """Reads its view and moves no thread, so that the simulation is that of `linux`."""

    def decide(self, view):
        return np.where(view.core_type > len(view.types), view.types[0], view.stay)


def crowd(threads: int) -> cs.Workload:
    """Programs in such a number, with nothing but a name."""
    text = "".join(f'[[program]]\nname = "p{n}"\nprofile = "../profiles/recorded/bzip2.json"\n' for n in range(threads))
    return cs.Workload.parse(text)


def run_ms(run, runs: int) -> float:
    """A run of `true`, as the mean of many in a row."""

    def all_of_them():
        for _ in range(runs):
            run()

    return 1000 * timed(all_of_them, 1) / runs


def decision_ms(policy, threads: int, decisions: int) -> float:
    """A decision about threads, as the difference of two simulations: with decisions by a Python class, and by `linux`."""
    machine, load = cs.Machine.load("i9-12900k-8p8e"), crowd(threads)
    span = dict(max_seconds=0.1 * decisions)

    def run(name):
        cs.Experiment(machine, load, name, **span).run()

    mine, none = (timed(lambda name=name: run(name)) for name in (policy, "linux"))
    return 1000 * (mine - none) / decisions


def sweep_seconds(mixes: int, client=None) -> float:
    grid = {"machines": ["i9-12900k-8p8e"], "policies": ["hsf"], "chunk": 10, "mixes": {"count": mixes, "programs": 16}}
    with tempfile.TemporaryDirectory() as folder:
        return timed(lambda: cs.sweep(grid, folder, client=client), 1)


def main(mixes: int = 200) -> None:
    print("| what | figure |\n|---|---|")
    print(f"| `import countersteer` | {1000 * median(seconds_of('import countersteer') for _ in range(5)):.0f} ms |")
    words = ["compare", "-M", COMPARED[0], "-w", COMPARED[1], "-P", "linux,hsf", "--seeds", "4", "--json"]
    cli = timed(lambda: subprocess.run([*STEER, *words], capture_output=True, check=True))
    own = timed(lambda: cs.compare(*COMPARED, ["linux", "hsf"], seeds=4))
    print(f"| `compare` of 8 runs from Python against `steer compare` | {own:.2f} s, {cli:.2f} s |")
    ms = decision_ms(Stays.policy_name, 1000, 20)
    print(f"| a decision of a Python class about 1,000 threads, over the loop without one | {ms:.2f} ms |")
    words = ["run", "--summary", os.devnull, "--", "true"]
    argv = run_ms(lambda: subprocess.run([*STEER, *words], capture_output=True, check=True), RUNS)
    own = run_ms(lambda: cs.run(["true"]), RUNS)
    print(f"| {RUNS:,} runs of `true`: `cs.run`, and `steer run --summary` started from Python | {own:.0f} ms, {argv:.0f} ms each |")
    alone = sweep_seconds(mixes)
    print(f"| mixes of 16 programs in an hour, threads of one process; from {mixes} | {3600 * mixes / alone:,.0f} |")
    try:
        from dask.distributed import Client, LocalCluster
    except ImportError:
        return
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        together = sweep_seconds(mixes, client)
    print(f"| the same on a LocalCluster of two workers | {3600 * mixes / together:,.0f} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
