"""A signature beside a binary, or inside it, decides where its processes are from their exec on, by both engines."""
import collections
import json
import sys


def answers(text):
    decoder = json.JSONDecoder()
    place = text.find("{")
    while place >= 0:
        answer, end = decoder.raw_decode(text, place)
        yield answer
        place = text.find("{", end)


cases = {case.split("\n", 1)[0]: case for case in sys.stdin.read().split("case ")[1:]}
wanted = "without affinity", "beside affinity", "inside affinity", "inside scx"
assert tuple(cases) == wanted, tuple(cases)
for name, text in cases.items():
    when, engine = name.split()
    carries = when in ("beside", "inside")
    copies = list(answers(text))
    assert len(copies) == 6, text
    masks = {int(line.split()[1]): line.split()[2] for line in text.splitlines() if line.startswith("mask ")}
    for copy in copies:
        decision = copy["decision"]
        speed = {row["group"]: round(row["value"], 2) for row in decision["alternatives"]}
        assert speed == {"big": 1.15 if carries else 3.84, "small": 1.0}, (name, copy)
        assert decision["at_s"] < 60, (name, copy)
        # The decision holds: by the mask of the thread, or by the target that the scheduler in the kernel was asked for.
        holds = {"3": "0-1", "c": "2-3"}[masks[copy["thread"]]] if engine == "affinity" else copy["allowed"]
        assert holds == decision["cpus"], (name, holds, copy)
    places = collections.Counter(copy["decision"]["cpus"] for copy in copies)
    assert places == ({"0-1": 3, "2-3": 3} if carries else {"0-1": 4, "2-3": 2}), (name, text)
