"""Callbacks, each hundred page faults of a loop over pages, and each 20,000 instructions: when the processor's counter overflows.

Each tells of as many instructions, and their cycles."""
import sys

counted = {(how, what): [] for how in ("polled", "watched") for what in ("page_faults", "instructions:u")}
for line in sys.stdin:
    how, *counts = line.split()
    if how == "lost":
        assert counts == ["0"], line
    else:
        assert counts[-4::2] == ["instructions:u", "cycles:u"], line
        counted[how, counts[0]].append([int(count) for count in counts[1::2]])
for (how, what), moments in counted.items():
    within = {instructions for *_, instructions, _ in moments[1:11]}
    # This machine's clock ticks once in four nanoseconds, that is per instruction, and its PMU counts nanoseconds.
    assert all(cycles == 4 * instructions for *_, instructions, cycles in moments), moments
    if what == "page_faults":
        assert 20 <= len(moments) <= 22 and all(faults == 100 for faults, *_ in moments), (how, moments)
        # The first has the way to the loop in it.
        assert len(within) == 1 and within.pop() in range(300, 1000), moments
    else:
        # The first overflow comes a block of the emulator's late.
        assert 11 <= len(moments) <= 14 and moments[0][0] in range(20_000, 20_100), (how, moments)
        assert within == {20_000}, moments
