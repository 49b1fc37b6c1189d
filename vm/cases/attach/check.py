"""Attaching to ten thousand threads: root raises the limit of open files and counts them."""
import json
import sys

lines = sys.stdin.read().splitlines()
assert any(line.startswith("ready 10000") for line in lines), lines
codes = {line.split()[0]: int(line.split()[1]) for line in lines if line.startswith(("code ", "limited "))}
assert codes["code"] == 0, lines
end = json.loads(next(line for line in lines if line.startswith("{")))
assert end["kind"] == "end" and end["records_lost"] == 0, end
assert codes["limited"] == 0, "root may go beyond the limit that it has"
