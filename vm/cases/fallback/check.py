"""Under a kernel without sched_ext masks do it, and one line says why; who insists on the scheduler gets the same as an error. BPF programs
that count threads need no such kernel."""
import counted
from printed import cases, is_placed, summaries

auto, scx, stat = cases.values()
lacks = "this kernel has no sched_ext"
said = [line for line in auto.splitlines() if line.startswith("said: ")]
assert len(said) == 1 and lacks in said[0] and "CPU affinity" in said[0], said
(run,) = summaries("auto")
assert is_placed(run) and "code: 0" in auto, auto
counted.forks(stat)
assert lacks in scx and "code: 0" not in scx, scx
