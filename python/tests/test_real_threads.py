"""Policies in Python on real threads of this machine, and what becomes of those that fail."""

import os
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
    (row,) = pa.table(run.programs).to_pylist()
    assert (row["program"], row["exit_code"], row["elapsed_s"]) == ("sleep", 0, program["elapsed_s"])
    assert row["cpu_s"] == sum(row[f"cpu_s_{name}"] for name in run.summary["core_types"]) == sum(program["cpu_s"])
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
        # On a busy host, a wrong answer may come late.
        limit_s = 0.2 if what.startswith("TimeoutError") else 30

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
    with pytest.raises(cs.CountersteerError, match="no engine `none`: auto, affinity, scx, scx-full"):
        cs.run(PROGRAM, engine="none")


def test_a_dry_run_tells_what_it_would_do_and_options_are_checked(tmp_path):
    run = cs.run(["sleep", "0.3"], "aarr", dry_run=True, period_ms=50)
    assert run.summary["decisions"] > 1 and all(isinstance(line, str) for line in run.planned)
    for wrong, what in [({"period_ms": 0}, "the period is 0"), ({"pid": 1}, "only one of them"), ({"machine": "pdp-11"}, "pdp-11")]:
        with pytest.raises(cs.CountersteerError, match=what):
            cs.run(["true"], **wrong)
    cs.run(["true"], record=tmp_path / "one.rec")
    with pytest.raises(cs.CountersteerError, match="has a record already"):
        cs.run(["true"], record=tmp_path / "one.rec")


def test_short_programs_leave_nothing_open():
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        assert cs.run(["true"]).summary["programs"][0]["exit_code"] == 0
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_a_program_is_counted_with_its_threads_and_processes():
    found = cs.stat(["sh", "-c", "true & wait"], metrics="page_faults/seconds")
    rows = pa.table(found.rows)
    assert found.exit_code == 0 and found.elapsed_s > 0
    assert {"page_faults", "page_faults/seconds"} <= set(rows.column("counter").to_pylist())
    assert len(set(rows.column("tid").to_pylist())) == 2 and set(rows.column("name").to_pylist()) == {"sh"}
    total = pa.table(cs.stat(["true"], events="task_clock", per="total").rows)
    assert total.num_rows == 1 and total.column("value")[0].as_py() > 0
    for wrong, what in [({"events": "no_event"}, "no_event"), ({"per": "core"}, "no rows per `core`"), ({"cpus": "x"}, "x")]:
        with pytest.raises(cs.CountersteerError, match=what):
            cs.stat(["true"], **wrong)


@pytest.mark.parametrize(
    "read",
    [lambda path: pa.ipc.open_stream(path).read_all(), lambda path: pytest.importorskip("polars").read_ipc_stream(path)],
    ids=["pyarrow", "polars"],
)
def test_tables_of_a_killed_run_are_read_by_others(tmp_path, read):
    steer = [sys.executable, "-m", "countersteer", "stat", "-i", "100ms", "-e", "task-clock", "-o", tmp_path / "run.rec"]
    with subprocess.Popen([*steer, "--", "sleep", "3600"]) as counting:
        steps = tmp_path / "run.rec/parts/steps.000000.arrows"
        until = time.monotonic() + 60
        while not steps.exists():
            assert time.monotonic() < until and counting.poll() is None
            time.sleep(0.05)
        counting.kill()
    table = read(steps)
    assert len(table) == len(cs.read_record(tmp_path / "run.rec").table("steps")) > 0


def test_intervals_are_yielded_while_a_program_runs():
    program = ["sh", "-c", "n=0; while :; do n=$((n+1)); done"]
    samples = cs.top(program, events="task_clock", interval_ms=50)
    # On a busy host the program may not run in an interval.
    tables = [pa.table(rows) for rows, _ in zip(filter(len, samples), range(3))]
    assert [t.column("counter").to_pylist() for t in tables] == [["task_clock"]] * 3
    ends = [t.column("end_s")[0].as_py() for t in tables]
    assert ends == sorted(ends) and all(t.column("value")[0].as_py() > 0 for t in tables)
    (pid,) = set(tables[0].column("pid").to_pylist())
    samples.stop()
    assert list(samples) == []
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    finished = list(cs.top(["sleep", "0.2"], events="task_clock", interval_ms=50))
    assert finished
    with pytest.raises(cs.CountersteerError, match="no_event"):
        cs.top(["true"], events="no_event")


def test_whole_runs_are_compared():
    found = cs.trial(["sleep", "0.5"], "nice -n 1", "linux", pairs=3)
    (program,) = pa.table(found.programs).to_pylist()
    assert found.all.pairs == program["pairs"] == 3 and abs(found.all.gain) < 0.5
    assert (program["low"], program["high"], program["verdict"]) == (found.all.low, found.all.high, found.all.verdict)
    with pytest.raises(cs.CountersteerError, match="neither a policy nor a program"):
        cs.trial(["true"], "no-such-thing")


def test_policies_in_python_are_on_trial():
    calls = []

    @cs.policy
    class Counting:
        "Everything on the fastest type."

        def decide(self, view):
            calls.append(len(view))
            return np.full(len(view), view.types[0])

    found = cs.trial(["sleep", "0.3"], Counting, pairs=2)
    assert found.all.pairs == 2 and len(calls) > 3

    @cs.policy
    class FailingOnTrial:
        "Nothing."

        def decide(self, view):
            raise ValueError("on purpose")

    with pytest.raises(cs.CountersteerError, match="(?s)dropped.*on purpose"):
        cs.trial(["sleep", "0.3"], FailingOnTrial, pairs=2)


def test_a_number_of_threads_is_found():
    found = cs.threads(["sleep", "0.0{n}"], trials=3, seconds=1)
    trials, finals = pa.table(found.trials), pa.table(found.finals)
    assert 0 < len(trials) <= 3 and min(trials.column("measured_s").to_pylist()) > 0.01
    assert found.default.startswith("sleep 0.0") and set(finals.column("verdict").to_pylist()) <= {None, "faster", "slower", "equivalent"}
    expected = cs.threads(["true", "{n}"], predict=True, machine="quickia-2b-2s")
    others = pa.table(expected.others)
    assert len(expected.trials) == 0 and set(others.column("measured_s").to_pylist()) == {None}
    assert sorted(others.column("predicted").to_pylist()) == others.column("predicted").to_pylist()


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
    began = time.process_time()
    for _ in range(20):
        places, _ = decider._decide(0.0, rows, dict.fromkeys(names, column), {"ipc": np.ones(rows).tobytes()}, [(0, "p")])
    assert places == [1] * rows
    assert (time.process_time() - began) / 20 < 0.05
