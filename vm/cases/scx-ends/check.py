"""The scheduler in the kernel goes when its process does or the kernel throws it out, and then masks take over."""
from printed import cases, lines, summaries

killed = lines("killed")
assert killed["killed"] == "disabled" and killed["alive"] == "16", killed
assert set(killed["where"].split()) == {"0", "1", "2", "3"}, killed

ejected = lines("ejected")
assert ejected["ejected"] == "disabled", ejected
# Masks have taken over.
assert ejected["masks"].split() == ["c"], ejected

watchdog = lines("watchdog")
assert "ended the scheduler" in cases["watchdog"], cases["watchdog"]
assert watchdog["state at the end"] == "disabled", watchdog
(run,) = summaries("watchdog")
assert run["programs"][0]["exit_code"] == 0, run
