"""Four threads of two instructions times five million rounds: each thread's intervals add up to that and little else.

That holds for BPF programs that read the counters of CPUs, and for counters of the threads' own."""
import json
import sys
from collections import Counter

ROUNDS, PER_ROUND, THREADS = 5_000_000, 2, 4
# What starting a thread and a program takes in user mode.
MOST_BESIDES = 60_000

runs = dict(run.split("\n", 1) for run in sys.stdin.read().split("bpf ")[1:])
assert runs.keys() == {"always", "never"}, runs.keys()
for bpf, run in runs.items():
    rows = [json.loads(line) for line in run.splitlines() if line.startswith("{")]
    instructions, cycles = Counter(), Counter()
    for row in rows:
        if row["kind"] == "reading":
            instructions[row["tid"]] += row["counts"]["instructions:u"]
            cycles[row["tid"]] += row["counts"]["cycles:u"]
    # What threads do once they have said their last word is nobody's; nothing of it is in user mode.
    assert instructions.pop(None, 0) == 0, (bpf, instructions)
    assert len(instructions) == THREADS, (bpf, instructions)
    for tid, counted in instructions.items():
        assert 0 <= counted - ROUNDS * PER_ROUND <= MOST_BESIDES, (bpf, tid, counted)
        # This machine's clock ticks once in four nanoseconds, that is per instruction, and its PMU counts nanoseconds.
        assert cycles[tid] == 4 * counted, (bpf, tid, counted, cycles[tid])
    assert len({row["time_s"] for row in rows if row["kind"] == "reading"}) > THREADS, "there were no intervals"
    end = rows[-1]
    assert end["kind"] == "end" and end["exit_code"] == 7 and end["records_lost"] == 0, (bpf, end)
