"""A resting engine's roll inside the kernel: how long threads ran is told as the kernel has it, of short ones and those that nobody
waited for too, and nothing is opened on threads."""
import json
import sys

told = dict(line.split(" ", 1) for line in sys.stdin.read().splitlines() if " " in line)


def sums(name):
    summary = json.loads(told[name])
    (program,) = summary["programs"]
    # Whose they were is known of all, however short they lived.
    assert summary["short_lived"] is None, summary
    ran_s, threads = sum(program["cpu_s"]), program["threads"]
    print(name, ran_s, threads, summary["elapsed_s"], file=sys.stderr)
    return ran_s, threads, summary["elapsed_s"]


ran_s, threads, _ = sums("tree")
used_s = int(told["used"]) * 1e-6
# The first shell ran a little before it was in its group.
assert abs(ran_s - used_s) < 0.01 * used_s, (ran_s, used_s)
# A shell, 'crowd' with as many as it says, loops, 'crowd' that becomes one, with its child, and one with a thread of the kernel's.
assert threads >= 1 + 301 + 8 + (1 + 3) + 4 + 2 + 2, threads
ran_s, threads, elapsed_s = sums("attached")
# They were there first and do nothing but run, as far as others let them; how long they had run by then is known to a tick.
assert threads == 2 and 0.9 * 2 * elapsed_s < ran_s < 2 * elapsed_s + 0.01, (threads, ran_s, elapsed_s)
_, bpf, _, perf = told["files"].split()
assert int(bpf) > 0 and int(perf) == 0, told["files"]
