#!/usr/bin/env python3
"""What policies lose whose machine file is wrong, as a table in Markdown: beliefs.py [STEER [MACHINE...]]

The machine that runs is right. In the file that policies read, one figure is wrong: the strength of memory's queue, memory's
latency, or the sizes of the last-level caches. All policies without required parameters run with seed 1 and each file. Those
whose throughput changes with any file get a row: medians of seeds 1 to 3. STEER is a built `steer`; by default it is built.
"""

import csv
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent
CASES = {
    "core2-quad": "shared-caches",
    "ryzen-7950x3d": "shared-caches",
    "i9-12900k-8p8e": "unequal-cores",
    "apple-m1": "unequal-cores",
}
# Policies that place nothing, or only what their parameters name.
LEFT_OUT = {"linux", "static", "groups", "scx"}
VARIANTS = ["hass:shared-cache=on"]
SEEDS = 3


def built() -> str:
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "countersteer-cli"], cwd=ROOT, check=True)
    return f"{os.environ.get('CARGO_TARGET_DIR', ROOT / 'target')}/release/steer"


def in_tables(text: str, table: str, change, last: bool = False) -> str:
    """The file with the tables of a name changed, or only those of the highest level."""
    parts = re.split(r"(?m)^(?=\[\[)", text)
    level = lambda part: int(re.search(r"(?m)^level = (\d+)", part)[1])
    chosen = [n for n, part in enumerate(parts) if part.startswith(f"[[{table}]]")]
    if last:
        highest = max(level(parts[n]) for n in chosen)
        chosen = [n for n in chosen if level(parts[n]) == highest]
    for n in chosen:
        parts[n] = change(parts[n])
    return "".join(parts)


def times(key: str, factor: float):
    return lambda part: re.sub(rf"(?m)^{key} = ([\d.]+)", lambda m: f"{key} = {float(m[1]) * factor:g}", part)


def queue(strength: float):
    return lambda text: in_tables(text, "memory", lambda part: part.replace("\n", f"\nqueueing = {strength}\n", 1))


FILES = {
    "queueing .03": queue(0.03),
    "queueing 1.5": queue(1.5),
    "latency x 2": lambda text: in_tables(text, "memory", times("latency_ns", 2)),
    "LLC x .5": lambda text: in_tables(text, "cache", times("size_kib", 0.5), last=True),
    "LLC x 2": lambda text: in_tables(text, "cache", times("size_kib", 2), last=True),
}


def throughputs(steer: str, machine: str, policies: list[str], seeds: int, belief: Path | None) -> dict:
    """System throughput by policy and seed."""
    words = [steer, "compare", "-M", machine, "-w", CASES[machine], "-P", ",".join(policies), "--seeds", str(seeds), "--csv"]
    words += ["--belief", str(belief)] if belief else []
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return {(row["policy"], row["seed"]): float(row["stp"]) for row in csv.DictReader(io.StringIO(done.stdout))}


def gain(found: dict, linux: dict, policy: str) -> str:
    """Medians of gains over Linux in per cent; Linux reads no file."""
    value = 100 * median(found[policy, seed] / stp - 1 for (name, seed), stp in linux.items() if name == "linux")
    return f"{value:+.1f}".replace("+0.0", "0.0").replace("-0.0", "0.0")


def main() -> None:
    steer = sys.argv[1] if len(sys.argv) > 1 else built()
    listed = subprocess.run([steer, "policy", "list"], capture_output=True, text=True, check=True).stdout
    names = [n for n in re.findall(r"(?m)^(\S+)  ", listed)[1:] if n not in LEFT_OUT] + VARIANTS
    print("| machine | policy | true |", " | ".join(FILES), "|\n|---|---|---|" + "---|" * len(FILES))
    unchanged = set(names)
    with tempfile.TemporaryDirectory() as folder:
        for machine in sys.argv[2:] or CASES:
            text = (ROOT / "machines" / f"{machine}.toml").read_text()
            files = {name: Path(folder) / f"{n}.toml" for n, name in enumerate(FILES)}
            for name, path in files.items():
                path.write_text(FILES[name](text))
            first = [throughputs(steer, machine, names, 1, path) for path in (None, *files.values())]
            changed = [name for name in names if len({found[name, "1"] for found in first}) > 1]
            unchanged -= set(changed)
            true, *false = (throughputs(steer, machine, ["linux", *changed], SEEDS, path) for path in (None, *files.values()))
            for name in changed:
                cells = [gain(found, true, name) for found in (true, *false)]
                print(f"| {machine} | `{name}` |", " | ".join(cells), "|", flush=True)
    print("\nNo change on any machine:", ", ".join(f"`{name}`" for name in names if name in unchanged))


main()
