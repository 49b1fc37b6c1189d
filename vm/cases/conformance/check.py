"""Every policy decides the same when what it saw under either engine is replayed."""
import re
import sys

text = sys.stdin.read()
found = re.findall(r"^(affinity|scx) (\S+): all (\d+) decisions are the same *$", text, re.M)
policies = ["static:*=big", "aarr", "hsf", "hsf:sf=steps", "adwrr", "acfs", "eqp"]
assert [(e, p) for e, p, _ in found] == [(e, p) for e in ("affinity", "scx") for p in policies], text
assert all(int(count) >= 5 for _, _, count in found), found
