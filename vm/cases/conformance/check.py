"""Every policy decides the same when what it saw under either engine is replayed."""
import re
import sys

text = sys.stdin.read()
found = re.findall(r"^(affinity|scx) (\S+): all (\d+) decisions are the same *$", text, re.M)
few = ["static:*=big", "hsf:young_ms=0", "eqp"]
wanted = {"affinity": few, "scx": [*few, "aarr", "hsf:sf=steps", "adwrr", "acfs"]}
assert [(e, p) for e, p, _ in found] == [(e, p) for e, policies in wanted.items() for p in policies], text
assert all(int(count) >= 5 for _, _, count in found), found
