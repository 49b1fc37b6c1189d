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
    decisions = list(answers(text))
    assert len(decisions) == 6, text
    words = [line.split() for line in text.splitlines() if line.startswith(("mask ", "seen "))]
    masks = {int(thread): mask for kind, thread, mask in words if kind == "mask"}
    seen = {int(thread): set(cpus.strip(",").split(",")) for kind, thread, cpus in words if kind == "seen"}
    for decision in decisions:
        speed = {group: round(value, 2) for group, value in decision["alternatives"].items()}
        assert speed == {"big": 1.15 if carries else 3.84, "small": 1.0}, (name, decision)
        assert decision["since_s"] < 60, (name, decision)
        # The decision holds: the thread runs on its CPUs, by its mask or by the scheduler in the kernel.
        thread, cpus = decision["thread"], decision["cpus"]
        assert seen[thread] <= {"0-1": {"0", "1"}, "2-3": {"2", "3"}}[cpus], (name, seen, decision)
        assert masks[thread] == ({"0-1": "3", "2-3": "c"}[cpus] if engine == "affinity" else "f"), (name, masks, decision)
    places = collections.Counter(decision["cpus"] for decision in decisions)
    # Without a signature, a copy stays where its shell was placed.
    assert not carries or places == {"0-1": 3, "2-3": 3}, (name, text)
