"""Policies in Python on real threads of this machine, and what becomes of those that fail."""

import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pytest

import countersteer as cs

PROGRAM = ["sleep", "0.6"]


def spin(_):
    while True:
        pass


def test_a_policy_steers_a_program_records_and_replays(tmp_path):
    calls = []

    @cs.policy
    class OntoTheFirst:
        "Everything on the fastest type."

        def decide(self, view):
            calls.append(len(view))
            return np.full(len(view), view.types[0])

    run = cs.run(PROGRAM, OntoTheFirst, record=tmp_path / "run.rec", period_ms=50)
    assert run.dropped is None and len(calls) == run.summary["decisions"] > 3
    (program,) = run.summary["programs"]
    assert program["name"] == "sleep" and program["exit_code"] == 0
    decisions = pa.table(run.record.table("decisions"))
    assert set(decisions.column("rule").to_pylist()) == {"Everything on the fastest type."}
    # The same policy in another process, where only its script knows it.
    script = tmp_path / "mine.py"
    script.write_text(
        "import sys, numpy as np, countersteer as cs\n"
        "@cs.policy\n"
        "class OntoTheFirst:\n"
        "    'Everything on the fastest type.'\n"
        "    def decide(self, view):\n"
        "        return np.full(len(view), view.types[0])\n"
        "sys.exit(cs.steer())\n"
    )
    again = subprocess.run([sys.executable, script, "replay", tmp_path / "run.rec"], capture_output=True, text=True)
    assert again.returncode == 0 and "decisions are the same" in again.stdout, again


@pytest.mark.parametrize(
    ("decide", "what"),
    [
        (lambda view: 1 / 0, "ZeroDivisionError"),
        (lambda view: np.full(len(view), np.nan), "must be integers"),
        (lambda view: np.zeros(len(view) + 1, dtype=int), "one place for each"),
        (spin, "TimeoutError: no decision within 0.2 s"),
        (lambda view: time.sleep(3600), "TimeoutError: no decision within 0.2 s"),
    ],
    ids=["exception", "nan", "shape", "spin", "sleep"],
)
def test_a_policy_that_fails_is_dropped_with_its_traceback(decide, what):
    @cs.policy
    class Fails:
        limit_s = 0.2

        def decide(self, view):
            return decide(view)

    run = cs.run(PROGRAM, Fails)
    assert what in run.dropped and "Traceback" in run.dropped
    assert run.summary["programs"][0]["exit_code"] == 0, "the program runs on"
    # In the simulator nothing is left to go on with.
    with pytest.raises(cs.CountersteerError, match=what):
        cs.compare("quickia-2b-2s", "unequal-cores", Fails, seeds=1, rounds=1)


def test_a_wrong_option_is_an_error_and_this_process_goes_on():
    with pytest.raises(cs.CountersteerError, match="no policy `fastest`"):
        cs.run(PROGRAM, "fastest")
    with pytest.raises(cs.CountersteerError, match="invalid value 'none'"):
        cs.run(PROGRAM, engine="none")


@pytest.mark.parametrize("command", [["steer"], [sys.executable, "-m", "countersteer"]], ids=["steer", "module"])
def test_the_command_is_there(command):
    path = [str(sys.prefix) + "/bin/steer"] if command == ["steer"] else command
    listed = subprocess.run([*path, "machine", "list", "--json"], capture_output=True, text=True)
    assert listed.returncode == 0 and "quickia-2b-2s" in listed.stdout
    wrong = subprocess.run([*path, "machine", "show", "pdp-11"], capture_output=True, text=True)
    assert wrong.returncode not in (0, 1) and "pdp-11" in wrong.stderr


def test_thousands_of_threads_are_decided_in_time():
    """A thousand threads in a period of 100 ms leave time to spare."""
    from countersteer.policy import _Decider

    class Half:
        def decide(self, view):
            return np.where(view.metric("ipc") < 1.0, view.types[-1], view.types[0])

    rows = 1000
    groups = [(0, "all", "machine", [0, 1]), (1, "big", "core-type", [0]), (2, "little", "core-type", [1])]
    column = np.arange(rows, dtype=np.int64).tobytes()
    names = ["thread", "program", "cpu", "runnable", "nice", "core_type"]
    decider = _Decider(Half, groups, {})
    began = time.perf_counter()
    for _ in range(20):
        places, _ = decider._decide(0.0, rows, dict.fromkeys(names, column), {"ipc": np.ones(rows).tobytes()}, [(0, "p")])
    assert places == [1] * rows
    assert (time.perf_counter() - began) / 20 < 0.05
