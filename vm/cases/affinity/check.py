"""Placements are kept, policies are exchanged while threads run, and what others do is respected."""
from printed import cases, is_placed, lines, summaries

for threads in (4, 16):
    (run,) = summaries(f"equal-shares {threads}")
    # BPF programs tell one sample of a period for each core type on which a thread ran; four threads change places nearly all the time.
    assert is_placed(run, 21 if threads > 4 else 0), (threads, run["misplaced"])
    big, small = run["programs"][0]["cpu_s"]
    assert run["programs"][0]["threads"] >= threads and big > 0 and small > 0, run["programs"]
    assert run["refused"] == 0, run

swap = lines("swap")
assert swap["masks before"].split() == ["4", "3"], swap
assert swap["masks after"].split() == ["4", "c"], swap
assert swap["why"] == "small", swap
# A rival is shown while it is there. Only one mask was set by another program: that of a CPU which went offline counts as before.
assert swap["rivals"] == '["gamemoded(PID)","CPUs3offline"] 1', swap
# One thread has the mask that somebody else gave it; the others are as free as they were.
assert swap["masks paused"].split() == ["1", "1", "3", "f"], swap
# A program that another thread than its process's first one has started is the same process, steered on.
assert swap["masks become"].split() == ["1", "c"], swap
assert swap["masks became"].split() == ["1", "3"], swap
assert swap["left"] == "0", swap
