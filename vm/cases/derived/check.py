"""Metrics that policies see, derived from counts: four nanoseconds an instruction, on a machine with one type of cores."""
import json
import sys

rows = [json.loads(line) for line in sys.stdin if line.startswith("{")]
values = [row for row in rows if row["kind"] == "value"]
ipc = [row["value"] for row in values if row["name"] == "ipc"]
sf = [row["value"] for row in values if row["name"] == "sf"]
assert len(ipc) > 3 and all(abs(value - 0.25) < 0.01 for value in ipc), ipc
assert len(sf) == len(ipc) and all(abs(value - 1) < 1e-6 for value in sf), sf
assert all(row["tid"] and row["unit"] for row in values), values
for formula in ("instructions/cycles", "sf*ipc"):
    values = [row["metrics"][formula] for row in rows if formula in (row.get("metrics") or {})]
    assert values and all(abs(value - 0.25) < 0.01 for value in values), (formula, values)
