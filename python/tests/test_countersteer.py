"""What the package promises: each test runs the real simulator."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import countersteer as cs

SMALL = dict(rounds=1)
MACHINE, WORKLOAD = "quickia-2b-2s", "unequal-cores"


def test_a_comparison_is_ranked_and_its_tables_are_arrow():
    result = cs.compare(MACHINE, WORKLOAD, ["linux", "aarr"], seeds=2, **SMALL)
    scores = pa.table(result.scores)
    assert scores.column("policy").to_pylist() == ["linux", "linux", "aarr", "aarr"]
    assert all(value > 0 for value in scores.column("stp").to_pylist())
    programs = pa.table(result.programs)
    assert programs.num_rows == 4 * len(set(programs.column("program").to_pylist()))
    runs = json.loads(result.to_json())["runs"]
    assert [run["stp"] for run in runs] == scores.column("stp").to_pylist()
    assert "aarr" in str(result) and "<table" in result._repr_html_() and "aarr" in result._repr_html_()


def test_the_same_experiment_gives_the_same_result_from_json():
    experiment = cs.Experiment(cs.Machine.load(MACHINE), cs.Workload.load(WORKLOAD), "hsf", 3, **SMALL)
    again = cs.Experiment.from_json(experiment.to_json())
    assert experiment.run().to_json() == again.run().to_json()


def test_a_policy_in_python_does_what_the_same_policy_in_rust_does():
    @cs.policy
    class Slowest:
        "Everything on the slowest cores."

        def decide(self, view):
            return np.full(len(view), view.types[-1])

    result = cs.compare(MACHINE, WORKLOAD, [Slowest, "static:*=bonnell"], seeds=1, **SMALL)
    mine, static = pa.table(result.scores).column("stp").to_pylist()
    # `static` names each thread once, this policy in every decision.
    assert mine == pytest.approx(static, rel=1e-4)


def test_a_policy_sees_metrics_and_its_reasons_are_recorded(tmp_path):
    seen = []

    @cs.policy
    class LowIpcAway:
        metrics = ["ipc", "1000 * branch_misses / instructions"]
        params = {"limit": 0.5, "loud": False}

        def decide(self, view):
            ipc = view.metric("ipc")
            seen.append((self.limit, self.loud, view.now_s, np.isnan(ipc).all(), view.programs[int(view.program[0])]))
            return np.where(ipc < self.limit, view.types[-1], view.stay), "by its ipc"

    result = cs.compare(MACHINE, WORKLOAD, "low-ipc-away:limit=0.8,loud=true", seeds=1, record=True, **SMALL)
    assert seen[0][:4] == (0.8, True, 0.0, True)
    assert not seen[-1][3] and isinstance(seen[-1][4], str)
    path = tmp_path / "run.rec"
    result.records[0].save(path)
    decisions = pa.table(cs.read_record(path).table("decisions"))
    assert "by its ipc" in decisions.column("rule").to_pylist()


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (lambda view: 1 / 0, "ZeroDivisionError"),
        (lambda view: np.zeros(1, dtype=int), "one place for each"),
        (lambda view: np.full(len(view), np.nan), "must be integers"),
        (lambda view: np.full(len(view), 4711), "no core group 4711"),
    ],
)
def test_a_wrong_answer_ends_the_run_with_the_traceback(answer, what):
    @cs.policy
    class Faulty:
        def decide(self, view):
            return answer(view)

    with pytest.raises(cs.CountersteerError, match=what) as raised:
        cs.compare(MACHINE, WORKLOAD, Faulty, seeds=2, **SMALL)
    assert "in decide" in str(raised.value) or "in _decide" in str(raised.value)


def test_a_policy_is_added_while_another_is_made():
    # In a process of its own: one that hangs can be ended.
    program = """
import threading, time
import countersteer as cs

@cs.policy
class Slow:
    def __init__(self):
        making.set()
        time.sleep(1)
    def decide(self, view):
        return view.stay

class Other:
    def decide(self, view):
        return view.stay

def add():
    making.wait()
    cs.policy(Other)

making = threading.Event()
thread = threading.Thread(target=add)
thread.start()
cs.compare("quickia-2b-2s", "unequal-cores", [Slow], seeds=1, rounds=1, max_seconds=1)
thread.join()
assert "other" in [name for name, _, _ in cs.policies()]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_policy_that_is_replaced_has_the_parameters_of_the_new_one():
    seen = []

    def limits(spec, params):
        class Kept:
            def decide(self, view):
                seen.append({key: getattr(self, key) for key in params})
                return view.stay

        Kept.params, Kept.__doc__ = params, f"With {params}."
        cs.policy(Kept)
        cs.compare(MACHINE, WORKLOAD, spec, seeds=1, max_seconds=1, **SMALL)
        assert ("kept", Kept.__doc__, "a Python class") in cs.policies()
        return seen[-1]

    assert limits("kept", {"limit": 1.0}) == {"limit": 1.0}
    assert limits("kept", {"limit": 2.0}) == {"limit": 2.0}
    assert limits("kept:other=4", {"limit": 2.0, "other": 3}) == {"limit": 2.0, "other": 4}
    assert limits("kept", {}) == {}
    with pytest.raises(cs.CountersteerError, match="no parameter `limit`"):
        cs.compare(MACHINE, WORKLOAD, "kept:limit=1", seeds=1, **SMALL)


def test_errors_name_what_is_wrong():
    with pytest.raises(cs.CountersteerError, match="there is no machine `pdp-11`"):
        cs.Machine.load("pdp-11")
    with pytest.raises(cs.CountersteerError, match="there is no policy `fastest`"):
        cs.compare(MACHINE, WORKLOAD, "fastest")
    with pytest.raises(cs.CountersteerError, match="unknown field"):
        cs.compare(MACHINE, WORKLOAD, "linux", round=1)


def test_a_sweep_goes_on_where_it_stopped(tmp_path):
    grid = {
        "machines": [MACHINE],
        "policies": ["linux", "aarr"],
        "chunk": 2,
        "mixes": {"count": 3, "programs": 4},
        "options": {"rounds": 1},
    }
    assert cs.sweep(grid, tmp_path) == 3
    before = {file.name: file.read_bytes() for file in tmp_path.glob("*.parquet")}
    assert len(before) == 6
    (tmp_path / "programs-00001.parquet").unlink()
    assert cs.sweep(grid, tmp_path, jobs=1) == 1
    assert before == {file.name: file.read_bytes() for file in tmp_path.glob("*.parquet")}


def test_this_machine_is_detected():
    machine = cs.Machine.detect()
    assert machine.core_types and machine.groups("machine")[0][2]


def test_a_region_is_counted():
    with cs.count("task_clock,page_faults") as counts:
        sum(range(200_000))
    first = counts["task_clock"]
    assert first > 0
    with counts:
        sum(range(200_000))
    assert counts["task_clock"] > first
    with pytest.raises(KeyError, match="was not counted"):
        counts["cycles"]
    with pytest.raises(cs.CountersteerError, match="no_such_event"):
        cs.count("no_such_event")


def test_the_papers_cases_run():
    assert len(cs.cases()) > 30
    (case,) = cs.reproduce("pmctrack-fig6a")
    assert case["findings"] and case["verdict"]
    with pytest.raises(cs.CountersteerError, match="no case `fig99`"):
        cs.reproduce("fig99")


def test_slowdowns_have_causes_and_programs_share_a_cache():
    found = cs.blame("core2-quad", "shared-caches", seeds=1, instead=["mpi"], rounds=1)
    programs, caused, places = map(pa.table, (found.programs, found.caused, found.places))
    names = set(programs.column("program").to_pylist())
    assert len(names) == len(programs) and len(caused) == len(names) * (len(names) - 1)
    assert set(caused.column("victim").to_pylist()) == set(caused.column("cause").to_pylist()) == names
    assert max(caused.column("slowdown").to_pylist()) > 0.01
    assert places.column("policy").to_pylist() == ["mpi"] * len(names) and set(places.column("program").to_pylist()) == names
    shared = pa.table(cs.mrc("core2-quad", "stream", "gzip").programs).to_pylist()
    assert [part["program"] for part in shared] == ["stream", "gzip"]
    assert sum(part["bytes"] for part in shared) <= 1.01 * shared[0]["cache_bytes"]
    assert all(part["mpki"] >= part["mpki_alone"] for part in shared)
    sizes = pa.table(cs.mrc("core2-quad", "stream", "gzip", sizes=[1 << 20, 2 << 20]).programs)
    assert sizes.column("cache_bytes").to_pylist() == [1 << 20] * 2 + [2 << 20] * 2
    misses = cs.Profile.load("gzip").misses(32 << 10, 1 << 20)
    assert misses[32 << 10] >= misses[1 << 20] >= 0
    with pytest.raises(cs.CountersteerError, match="no-such"):
        cs.mrc("core2-quad", "no-such", "gzip")
