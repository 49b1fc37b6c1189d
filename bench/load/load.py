#!/usr/bin/env python3
"""Loads and soaks of steer, of which docs/benchmarks.md has the figures: load.py STEER WHAT [ARGUMENT]

threads [N]     `stat` and `run` of a program of N threads (10,000) that wake once a second, for 20 s
cpus [N]        a machine of N CPUs (1,024) with a program for each: `sim` with a record, `report`, `why`
record [MB]     a record of so many megabytes (1,024): `report`, `why`, `replay`
programs [N]    a report of N programs (500)
soak [MINUTES]  `run`, `stat` and `daemon` of a program that starts ten processes a second, for 30 minutes: growth of memory
messages        malformed HTTP requests and control messages to a daemon, which has to answer sound ones after each

Each prints what it measured as rows of a table in Markdown. It needs gcc, and no privilege. Elapsed times depend on what else runs.
"""

import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MACHINE = ROOT / "bench" / "load" / "machine.toml"


def build_load(folder):
    program = folder / "load"
    subprocess.run(["gcc", "-O1", "-pthread", ROOT / "bench/stat/load.c", "-o", program], check=True)
    return program


def status(pid, key):
    """A figure of /proc/PID/status in kB; None when the process has ended."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    found = re.search(rf"^{key}:\s*(\d+)", text, re.M)
    return int(found.group(1)) if found else None


def measured(words, folder, limit=600):
    """Exit code, elapsed and CPU seconds, peak of memory in MB, and the end of the messages of a command."""
    with open(folder / "stderr", "wb") as messages:
        begun = time.monotonic()
        child = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=messages, env=environment(folder))
        try:
            _, code, used = wait4(child.pid, limit)
        except TimeoutError:
            child.kill()
            _, code, used = os.wait4(child.pid, 0)
        child.returncode = code
    said = (folder / "stderr").read_text(errors="replace").strip().splitlines()
    seconds = time.monotonic() - begun
    return os.waitstatus_to_exitcode(code), seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, said[-1:]


def wait4(pid, limit):
    until = time.monotonic() + limit
    while time.monotonic() < until:
        found, code, used = os.wait4(pid, os.WNOHANG)
        if found:
            return found, code, used
        time.sleep(0.02)
    raise TimeoutError


def environment(folder):
    (folder / "runtime").mkdir(exist_ok=True)
    return {**os.environ, "RUNTIME_DIRECTORY": str(folder / "runtime"), "HOME": str(folder)}


def row(name, outcome):
    code, seconds, cpu, megabytes, said = outcome
    print(f"| {name} | {code} | {seconds:.1f} | {cpu:.2f} | {megabytes:.0f} |", flush=True)
    if code:
        print(f"{name}: {said}", file=sys.stderr)


def head():
    print("| command | exit code | elapsed, s | CPU, s | peak memory, MB |\n|---|---:|---:|---:|---:|", flush=True)


def threads(steer, folder, count=10_000):
    load = build_load(folder)
    head()
    for name, words in [
        ("stat -i 1s", ["stat", "-i", "1s", "--csv", "--to", "rows.csv"]),
        ("run -P aarr", ["run", "-P", "aarr", "-M", MACHINE, "--engine", "affinity"]),
    ]:
        # `steer` alone is measured: the program is a process of its own.
        program = subprocess.Popen([load, "sleepers", str(count), "60"])
        while (status(program.pid, "Threads") or 0) <= count:
            time.sleep(0.05)
        command = [steer, *words, "-p", str(program.pid)]
        child = subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=subprocess.DEVNULL)
        begun = time.monotonic()
        time.sleep(20)
        child.send_signal(signal.SIGINT)
        _, code, used = os.wait4(child.pid, 0)
        child.returncode = code
        outcome = os.waitstatus_to_exitcode(code), time.monotonic() - begun
        row(f"{name}, {count} threads", (*outcome, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, []))
        program.kill()
        program.wait()
    with open(folder / "rows.csv") as rows:
        print("rows of stat:", sum(1 for _ in rows))


def cpus(steer, folder, count=1024):
    text = MACHINE.read_text().replace('"0-0"', f'"0-{count // 2 - 1}"').replace('"1-1"', f'"{count // 2}-{count - 1}"')
    (folder / "machine.toml").write_text(text.replace('"0-1"', f'"0-{count - 1}"'))
    workload(folder, count)
    head()
    simulated = ["sim", "-M", "machine.toml", "-w", "workload.toml", "-P", "hsf", "--max-seconds", "2", "-o", "run.rec"]
    row(f"sim, {count} CPUs", measured([steer, *simulated], folder))
    asked(steer, folder)


def workload(folder, count):
    names = ["gzip", "xz", "matmul", "chase", "stream", "sieve"]
    rows = [f'[[program]]\nname = "p{n}"\nprofile = "{names[n % len(names)]}"\n' for n in range(count)]
    (folder / "workload.toml").write_text("\n".join(rows))


def asked(steer, folder):
    row("report", measured([steer, "report", "run.rec", "-o", "run.html"], folder))
    row("why", measured([steer, "why", "run.rec", "--program", "p1", "--at", "1"], folder))
    row("replay", measured([steer, "replay", "run.rec"], folder))
    if (folder / "run.html").exists():
        print(f"report: {(folder / 'run.html').stat().st_size / 1e6:.1f} MB")


def size(record):
    return sum(file.stat().st_size for file in record.iterdir())


def record(steer, folder, megabytes=1024):
    workload(folder, 64)
    head()
    seconds = 4
    while True:
        words = ["sim", "-M", "xeon-gold-6138", "-w", "workload.toml", "-P", "hsf", "-i", "1ms", "--rounds", "1000"]
        words += ["--max-seconds", str(seconds), "-o", "run.rec", "--force"]
        row(f"sim, {seconds} s", measured([steer, *words, "--max-wall", "1h"], folder, 3600))
        made = size(folder / "run.rec") / 1e6
        print(f"record: {made:.0f} MB", flush=True)
        if made > 0.9 * megabytes:
            break
        seconds = max(seconds + 1, int(seconds * 1.05 * megabytes / made))
    asked(steer, folder)


def programs(steer, folder, count=500):
    workload(folder, count)
    head()
    words = ["sim", "-M", "xeon-gold-6138", "-w", "workload.toml", "-P", "hsf", "--max-seconds", "5", "-o", "run.rec"]
    row(f"sim, {count} programs", measured([steer, *words], folder))
    asked(steer, folder)


def rules(folder, name):
    text = f'schema = "countersteer.rules/1"\npolicy = "aarr"\nperiod_ms = 100\n[[steer]]\nname = "{name}"\n'
    (folder / "rules.toml").write_text(text)
    return ["daemon", "--rules", "rules.toml", "-M", MACHINE, "--engine", "affinity"]


def soak(steer, folder, minutes=30):
    # The daemon steers by name, and other loads of this machine are not meant.
    load = build_load(folder).rename(folder / f"soak{os.getpid()}")
    program = subprocess.Popen([load, "churn", "100", str(minutes * 60 + 60)])
    target = ["-p", str(program.pid)]
    kinds = {
        "run": ["run", "-P", "aarr", "-M", MACHINE, "--engine", "affinity", *target],
        "stat": ["stat", "-i", "1s", "--csv", "--to", "/dev/null", *target],
        "daemon": rules(folder, load.name),
    }
    children = {}
    for name, words in kinds.items():
        own = folder / name
        own.mkdir()
        shutil.copy(folder / "rules.toml", own) if (folder / "rules.toml").exists() else None
        messages = open(own / "stderr", "wb")
        children[name] = subprocess.Popen(
            [steer, *words], cwd=own, env=environment(own), stdout=subprocess.DEVNULL, stderr=messages
        )
    seen = {name: [] for name in kinds}
    begun = time.monotonic()
    while time.monotonic() - begun < minutes * 60:
        time.sleep(10)
        for name, child in children.items():
            resident = status(child.pid, "VmRSS")
            if resident is None:
                raise SystemExit(f"{name} ended: {(folder / name / 'stderr').read_text()[-500:]}")
            seen[name].append((resident, len(os.listdir(f"/proc/{child.pid}/fd"))))
        print(int(time.monotonic() - begun), {name: rows[-1] for name, rows in seen.items()}, file=sys.stderr, flush=True)
    print("| command | memory after a sixth of the time, kB | at the end | growth | open files, then | at the end |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, rows in seen.items():
        sixth = len(rows) // 6
        (early, before), (late, after) = (
            [statistics.median(column) for column in zip(*part)] for part in (rows[sixth : 2 * sixth], rows[-sixth:])
        )
        print(f"| {name} | {early:.0f} | {late:.0f} | {late / early - 1:+.2%} | {before:.0f} | {after:.0f} |")
    for child in children.values():
        child.send_signal(signal.SIGTERM)
        child.wait()
    program.kill()


def exchanged(address, message, family):
    """What comes back for a message; b"" when the connection ends without an answer, or nothing comes in five seconds."""
    with socket.socket(family, socket.SOCK_STREAM) as stream:
        stream.settimeout(5)
        try:
            stream.connect(address)
            stream.sendall(message)
            stream.shutdown(socket.SHUT_WR)
            return stream.recv(1 << 16)
        except OSError:
            return b""


def messages(steer, folder):
    rng = random.Random(1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [*rules(folder, "nobody-has-this-name"), "--metrics", f"127.0.0.1:{port}"]
    with open(folder / "stderr", "wb") as said:
        child = subprocess.Popen([steer, *words], cwd=folder, env=environment(folder), stderr=said)
    doors = {
        "metrics": (("127.0.0.1", port), socket.AF_INET, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        "control": (str(folder / "runtime" / "daemon.sock"), socket.AF_UNIX, b'{"ask": "status"}\n'),
    }
    until = time.monotonic() + 30
    while not all(exchanged(address, sound, family) for address, family, sound in doors.values()):
        if time.monotonic() > until:
            raise SystemExit(f"the daemon does not answer: {(folder / 'stderr').read_text()[-500:]}")
        time.sleep(0.1)
    before = status(child.pid, "VmRSS")
    print("| door | messages | answered | sound one answered afterwards | longest wait, ms |\n|---|---:|---:|---|---:|")
    for name, (address, family, sound) in doors.items():
        answered, longest, count = 0, 0.0, 2000
        for number in range(count):
            begun = time.monotonic()
            answered += exchanged(address, hostile(rng, sound, number), family) != b""
            longest = max(longest, time.monotonic() - begun)
        fine = exchanged(address, sound, family) != b""
        print(f"| {name} | {count} | {answered} | {'yes' if fine else 'NO'} | {longest * 1000:.0f} |")
    print(f"memory: {before} kB before, {status(child.pid, 'VmRSS')} kB after")
    child.send_signal(signal.SIGTERM)
    print("exit code of the daemon:", child.wait(), (folder / "stderr").read_text()[-300:].strip())


def hostile(rng, sound, number):
    """Sound messages with changed, missing and repeated bytes, long ones, and ones that are none."""
    kind = number % 6
    data = bytearray(sound)
    if kind == 0:
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif kind == 1:
        del data[rng.randrange(len(data)) :]
    elif kind == 2:
        data = data.replace(b"\n", b"\nX-A: " + b"a" * rng.randint(1, 70_000) + b"\n", 1)
    elif kind == 3:
        data = bytearray(rng.randbytes(rng.randint(0, 4096)))
    elif kind == 4:
        data = bytearray(b"[" * rng.randint(1, 60_000) + b"\n")
    else:
        data = bytearray(json.dumps({"ask": "set", "policy": "x" * rng.randint(0, 60_000), "period_ms": -1e308}).encode() + b"\n")
    return bytes(data)


def main():
    if len(sys.argv) < 3 or sys.argv[2] not in KINDS:
        raise SystemExit(__doc__)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    steer = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        KINDS[sys.argv[2]](steer, Path(folder), *map(int, sys.argv[3:4]))


KINDS = {"threads": threads, "cpus": cpus, "record": record, "programs": programs, "soak": soak, "messages": messages}

if __name__ == "__main__":
    main()
