"""systemd's unit starts, counts, steers, comes back after kill -9 and leaves nothing behind."""
import sys

lines = dict(line.split(": ", 1) for line in sys.stdin.read().splitlines() if ": " in line)
assert lines["started"] == "0", lines
assert lines["state"] == "active running", lines
assert lines["confined"] == "1", lines
# CAP_SYS_NICE, CAP_SYS_RESOURCE, CAP_PERFMON.
assert int(lines["powers"], 16) == 1 << 23 | 1 << 24 | 1 << 38, lines
assert lines["metrics"] == "countersteer_confined_total 1.0", lines
assert float(lines["counted"]) > 0.5, lines
assert lines["killed"] == "3", lines
assert lines["again"] == "1 active 1", lines
assert lines["stopped"] == "0 3 0", lines
assert "without counters" not in lines["log"], lines
assert lines["without counters"].startswith("1 steer: steered without counters"), lines
assert "CAP_SYS_ADMIN" in lines["without counters"], lines
