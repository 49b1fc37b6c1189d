"""Who gets more work done on the fast cores, by its own word and nothing else, is found out and sent there."""
import json
import re
import sys

text = sys.stdin.read()
run = json.loads(text[text.index("{"):text.index("replay: ")])
on_big = {p["name"]: p["cpu_s"][0] / sum(p["cpu_s"]) for p in run["programs"]}
# Both are sent to the other core now and then, to be measured.
assert on_big["gains"] > 0.65 and on_big["stays"] < 0.35, on_big
# Nanoseconds of CPU time, those on big cores twice for who gains by them.
for program in run["programs"]:
    big, small = program["cpu_s"]
    expected = (big * (2 if program["name"] == "gains" else 1) + small) * 1e9
    assert 0.8 * expected < program["work"] < 1.2 * expected, program
assert re.search(r"replay: all \d+ decisions are the same", text), text
assert re.search(r"^program .* work *$", text, re.M), text
