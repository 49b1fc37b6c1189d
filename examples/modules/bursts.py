#!/usr/bin/env python3
"""Monitoring module: steer stat -i 100ms --module examples/modules/bursts.py -- ./program

It declares the events that it needs, and two virtual counters of each thread: the page faults of an interval above the thread's
running mean, and the number of intervals with more than twice that mean."""

import json
import sys

print(json.dumps({
    "module": 1,
    "events": ["task_clock,page_faults"],
    "counters": [
        {"name": "fault_excess", "unit": "1", "prose": "page faults above the thread's running mean"},
        {"name": "fault_bursts", "unit": "1", "prose": "intervals with more than twice the mean", "grows": True},
    ],
}), flush=True)

means = {}
for line in sys.stdin:
    values = []
    for row in json.loads(line)["rows"]:
        faults = row["counts"].get("page_faults")
        if faults is None or "tid" not in row:
            continue
        mean = means.get(row["tid"], faults)
        values.append({"counter": "fault_excess", "tid": row["tid"], "value": faults - mean})
        values.append({"counter": "fault_bursts", "tid": row["tid"], "value": float(faults > 2 * mean)})
        means[row["tid"]] = mean + (faults - mean) / 4
        if row["last"]:
            del means[row["tid"]]
    print(json.dumps({"values": values}), flush=True)
