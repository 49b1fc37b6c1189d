"""Scores live runs, lets the simulator score the same mix on the same machine, and prints both.

table.py STEER FOLDER, where FOLDER holds live, live--no-capacities and work.json.

Three things of the machine are given to the simulation: how much slower the slow CPUs are and how long a burst takes, both by the program that only
computes, alone, and what that does, by its profile. Scores are aggregate speed-ups: the sum over programs of the speed over that alone on a slow CPU, less one.
"""
import json
import re
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

STEER, FOLDER = sys.argv[1], Path(sys.argv[2])
HERE = Path(__file__).parent
SEEDS = 10
POLICY = "hsf:sf=work"
NAMES = {"linux": "linux", "affinity": f"{POLICY} by masks", "scx": f"{POLICY} by the scheduler in the kernel"}
ARMS = list(NAMES)


def rates(summary):
    return {p["name"]: p["work"] / summary["elapsed_s"] for p in summary["programs"]}


def kind(name):
    return name.split("#")[0]


def live(path):
    """Speeds alone, and scores by arm."""
    runs = {}
    for name, summary in re.findall(r"^run (\S+): (\{.*\})$", path.read_text(), re.M):
        runs.setdefault(name, []).append(rates(json.loads(summary)))
    alone = {name: statistics.median(sum(r.values()) for r in runs[name]) for name in runs if name not in ARMS}
    score = lambda run: sum(rate / alone["slow-" + kind(name)] - 1 for name, rate in run.items())
    return alone, {arm: [score(run) for run in runs[arm]] for arm in ARMS}


def compare(machine, workload, policies, seeds):
    command = [STEER, "compare", "--json", "-M", str(machine), "-w", str(workload), "--seeds", str(seeds)]
    command += [flag for policy in policies for flag in ("-p", policy)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["runs"]


def machine(slow_ghz, known):
    """The machine's file, with the slow CPUs' clock as measured, and their capacity as the kernel knows it."""
    text = (HERE / "machine.toml").read_text().replace("freq_ghz = 1.5", f"freq_ghz = {slow_ghz:.4f}")
    if known:
        text = text.replace('linux = "symmetric"', 'linux = "capacity"')
    else:
        text = text.replace("capacity = 512", "capacity = 1024")
    path = FOLDER / "machine.toml"
    path.write_text(text)
    return path


def program(name, copies, scale, waits=""):
    return f'[[program]]\nname = "{name}"\nprofile = "work.json"\nthreads = 1\ncopies = {copies}\nscale = {scale:.4f}\n{waits}\n'


def simulated(alone, known):
    """Scores by policy."""
    mix = tomllib.loads((HERE / "mix.toml").read_text())["program"]
    path, workload = machine(3.0 * alone["slow-hog"] / alone["fast-hog"], known), FOLDER / "mix.toml"
    workload.write_text(program("hog", 1, 1))
    (alone_run,) = compare(path, workload, ["linux"], seeds=1)
    seconds = alone_run["programs"][0]["alone_fast_s"]
    instructions = json.loads((FOLDER / "work.json").read_text())["instructions"]
    # Each run of a program takes some seconds; bursts take as long as they did.
    scale, text = 5 / seconds, ""
    for row in mix:
        waits = ""
        if len(row["command"]) > 2:
            units, ms = (int(word) for word in row["command"][2:])
            burst_mi = units / alone["fast-hog"] * instructions / seconds / 1e6
            waits = f"burst_mi = {burst_mi:.4f}\nsleep_ms = {ms}\n"
        text += program(row["name"], row["copies"], scale, waits)
    workload.write_text(text)
    scores = {}
    for run in compare(path, workload, ["linux", POLICY], SEEDS):
        scores.setdefault(run["policy"], []).append(run["asp"])
    return scores


def row(arm, scores, linux):
    median = statistics.median(scores)
    return f"| {arm} | {median:.3f} | {min(scores):.3f} to {max(scores):.3f} | {median - statistics.median(linux):+.3f} |"


for known in (True, False):
    alone, scores = live(FOLDER / ("live" if known else "live--no-capacities"))
    print(f"Capacities {'known' if known else 'not known'} to the kernel. Work alone, units/s: " +
          ", ".join(f"{name} {rate:.0f}" for name, rate in sorted(alone.items())) + ".\n")
    print("| | ASP, median | range | over Linux |\n|---|---|---|---|")
    for arm in ARMS:
        print(row(f"live, {NAMES[arm]}", scores[arm], scores["linux"]))
    model = simulated(alone, known)
    for policy, values in model.items():
        print(row(f"simulated, {policy}", values, model["linux"]))
    print()
