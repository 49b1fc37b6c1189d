"""A policy that panics, dawdles or never comes back: its threads are Linux's again, whoever placed them."""
from told import cases, lines, summaries

SAID = {
    "panic": "was dropped: it failed: ",
    "slow": "was dropped: 5 decisions in a row took longer than a period; Linux's own scheduler goes on",
    "stuck": "the policy does not come back from a decision; all threads are let go and this run ends",
}
for engine in ("affinity", "scx"):
    for fault, said in SAID.items():
        case = f"{engine} {fault}"
        told = lines(case)
        assert told["before"].split() == ["3"], (case, told)
        assert said in cases[case], (case, cases[case])
        assert told["masks"].split() == ["f"], (case, told)
        assert len(told["after"].split()) > 1, (case, told)
        assert told["code"] == "1" if fault == "stuck" else told["code"] in ("0", "143"), (case, told)
        assert (told["state"], told["left"]) == ("disabled", "0"), (case, told)
        if fault != "stuck":
            assert '"linux"' in told["policy"], (case, told)
            (run,) = summaries(case)
            # All were there to the end, and nothing was wrong but the policy.
            assert run["programs"][0]["threads"] >= 4 and run["refused"] == 0, (case, run)
