"""Co-runners are slowed down by signals, and by control groups where there are; nothing of it is left, not even after a kill.

Software events stand in for the processor's, which this machine lacks."""
import sys

lines = [line.split() for line in sys.stdin.read().splitlines()]
said = {tuple(words[:2]): words[2:] for words in lines if len(words) > 2}
assert said["signals", "code"] == ["0"] and said["group", "code"] == ["0"], lines
for what in ["signals", "group", "killed"]:
    assert said[what, "left"] == ["0", "0"], (what, said[what, "left"])
assert all(int(said[how, "points"][0]) >= 1 for how in ["signals", "group"]), said
limits = {tuple(words[1:]) for words in lines if words and words[0] == "limit"}
# A part of twenty milliseconds, and not always the same.
assert len(limits) >= 2 and all(period == "20000" and int(quota) <= 20000 for quota, period in limits), limits
during = next(int(words[1]) for words in lines if words and words[0] == "during")
assert during >= 2, during
