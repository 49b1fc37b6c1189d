"""The kernel's verifier takes the scheduler on the oldest kernel that it is for, and it does its work there. So do the
programs that count threads."""
import sys

import counted

text = sys.stdin.read()
head, stat, steps, *engines = text.split("case ")
assert head.startswith("kernel: 6."), head
counted.forks(stat)
assert "code: 0" in steps, steps
for case in engines:
    found = dict(line.split(": ", 1) for line in case.splitlines() if ": " in line)
    assert found["state"] == "enabled", case
    assert set(found["before"].split()) <= {"0", "1"}, case
    assert set(found["after"].split()) <= {"2", "3"}, case
    assert found["killed"] == "disabled" and found["alive"] == "4", case
