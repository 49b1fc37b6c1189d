"""A policy that panics, dawdles or never comes back: its threads are Linux's again, whoever placed them."""
from printed import cases, lines, summaries

SAID = {
    "panic": "was dropped: it failed: ",
    "slow": "was dropped: 5 decisions in a row took longer than a period; Linux's own scheduler continues",
    "stuck": "the policy does not return from a decision; all threads are released and this run ends",
}
for engine in ("affinity", "scx"):
    for fault, said in SAID.items():
        case = f"{engine} {fault}"
        shown = lines(case)
        assert shown["before"].split() == ["3"], (case, shown)
        assert said in cases[case], (case, cases[case])
        assert shown["masks"].split() == ["f"], (case, shown)
        assert len(shown["after"].split()) > 1, (case, shown)
        assert shown["code"] == "1" if fault == "stuck" else shown["code"] in ("0", "143"), (case, shown)
        assert (shown["state"], shown["left"]) == ("disabled", "0"), (case, shown)
        if fault != "stuck":
            assert '"linux"' in shown["policy"], (case, shown)
            (run,) = summaries(case)
            # All were there to the end, and nothing was wrong but the policy.
            assert run["programs"][0]["threads"] >= 4 and run["refused"] == 0, (case, run)
# One process steers twice, and survives both: the scheduler is gone after each run, although a thread holds it.
shown = lines("twice")
assert shown["masks"].split() == ["f"] and len(shown["after"].split()) > 1 and shown["state"] == "disabled", shown
assert cases["twice"].count(f"failed: {SAID['stuck']}") == 2, cases["twice"]
assert cases["twice"].count("sched_ext: disabled") == 2, cases["twice"]
