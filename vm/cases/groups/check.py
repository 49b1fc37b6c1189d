"""Core groups of the user's choice in the kernel: each has its own policy, and its threads stay inside it."""
from printed import is_placed, lines, summaries

shown = lines("groups")


def places(key):
    """CPUs of each thread."""
    found = [set(thread.split("+")) for thread in shown[key].split()]
    assert len(found) == 8, shown
    return found


def divided(key, groups):
    """Threads of each group; all are inside one."""
    inside = [[thread for thread in places(key) if thread <= set(cpus)] for cpus in groups]
    assert sum(map(len, inside)) == 8, (key, shown)
    assert all(len(threads) >= 2 for threads in inside), (key, shown)
    return inside


divided("halves", ("01", "23"))
turning, fixed = divided("pairs", ("02", "13"))
assert all(thread == {"0", "2"} for thread in turning), shown
assert all(thread == {"3"} for thread in fixed), shown
fixed, free = divided("exchanged", ("02", "13"))
assert all(thread == {"0"} for thread in fixed), shown
assert set().union(*free) == {"1", "3"}, shown
assert shown["why"] == "given", shown
(run,) = summaries("groups")
assert run["refused"] == 0 and run["stolen"] == 0, run
assert is_placed(run), run
