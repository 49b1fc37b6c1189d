"""A table of what engines cost, from what the machines printed: table.py FOLDER"""
import pathlib
import statistics
import sys

ENGINES = ["scx", "scx-full", "affinity"]


def figures(path):
    """What was measured, by name: seconds, summed up, or microseconds of the 50th, 90th and 99th percentile, each the median."""
    found, latencies = {}, {}
    for words in map(str.split, path.read_text().splitlines()):
        if words[:2] == ["hackbench", "seconds"]:
            name = "hackbench, 2 groups, 400 to 700 loops"
            found[name] = [found.get(name, [0])[0] + float(words[2])]
        elif words[:2] == ["build", "seconds"]:
            name = "compiling 24 files, 8 at a time, three times"
            found[name] = [found.get(name, [0])[0] + float(words[3]) - float(words[2])]
        elif words[:1] == ["schbench"]:
            requests = "0.5 ms" if words[2] == "4" else "12 ms"
            name = f"schbench, 2 x {words[1]} threads, requests of {requests}"
            latencies.setdefault(name, []).append([float(w) for w in words[3:]])
    return found | {name: [statistics.median(runs) for runs in zip(*printed)] for name, printed in latencies.items()}


def cell(bare, steered):
    if len(bare) == 1:
        return f"{100 * (steered[0] / bare[0] - 1):+.1f} %"
    return ", ".join(f"{value:.0f}" for value in steered)


folder = pathlib.Path(sys.argv[1])
bare, steered = figures(folder / "bare"), [figures(folder / name) for name in ENGINES]
print("| | Linux | scheduler, threads that are steered | scheduler, all threads | masks |")
print("|---|---|---|---|---|")
for name, value in bare.items():
    own = f"{value[0]:.2f} s" if len(value) == 1 else cell(value, value) + " µs"
    print("|", " | ".join([name, own] + [cell(value, s[name]) for s in steered]), "|")
