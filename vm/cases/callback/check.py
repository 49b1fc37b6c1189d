"""A callback each hundred page faults of a loop over pages: each tells of the same few instructions, and their cycles."""
import sys

moments = {"polled": [], "watched": []}
for line in sys.stdin:
    words = line.split()
    if words[0] in moments:
        assert words[1] == "page_faults" and words[3] == "instructions:u" and words[5] == "cycles:u", line
        moments[words[0]].append(tuple(int(words[i]) for i in (2, 4, 6)))
    else:
        assert line == "lost 0\n", line
for how, told in moments.items():
    assert 20 <= len(told) <= 22, (how, told)
    assert all(faults == 100 for faults, _, _ in told), told
    # The first has the way to the loop in it.
    within = {instructions for _, instructions, _ in told[1:20]}
    assert len(within) == 1 and within.pop() in range(300, 1000), told
    # This machine's clock ticks once in four nanoseconds, that is per instruction, and its PMU counts nanoseconds.
    assert all(cycles == 4 * instructions for _, instructions, cycles in told), told
