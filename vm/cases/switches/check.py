"""A policy's hook at context switches: in the kernel it learns of each, and places threads by the lengths of their runs."""
from statistics import median

from printed import cases, lines

placed = lines("placed scx")
assert placed["short"].split() and set(placed["short"].split()) <= {"2", "3"}, placed
assert placed["long"].split() and set(placed["long"].split()) <= {"0", "1"}, placed
assert placed["why"] == "run_ms" and placed["replayed"] == "1", cases["placed scx"]
# Masks alone report no switch: that is said once, and no thread is placed.
said = "the policy asks for context switches, which only the sched_ext scheduler reports"
assert cases["placed affinity"].count(said) == 1, cases["placed affinity"]
assert "why" not in lines("placed affinity"), cases["placed affinity"]

cost = lines("cost")
parts = {state: [cost[f"{state}-{turn}"].split() for turn in (1, 2, 3)] for state in ("off", "on")}
off, on = (median(float(rate) for rate, _ in parts[state]) for state in ("off", "on"))
idle, busy = (median(int(ticks) for _, ticks in parts[state]) for state in ("off", "on"))
print(
    f"{off:.0f} switches a second without the hook, {on:.0f} with it: {(1 / on - 1 / off) * 1e9:.0f} ns each, user space included; "
    f"steer used {idle} and {busy} ticks of 10 ms in 1.5 s"
)
assert off > 1000 and on > 0.7 * off, cost
assert "were lost" not in cases["cost"], cases["cost"]
