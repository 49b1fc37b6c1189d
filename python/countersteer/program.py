"""``steer`` from Python: the command itself, and a policy on real threads.

The extension has all of ``steer`` inside. A program of one's own becomes a ``steer`` that knows its policies as well::

    if __name__ == "__main__":
        sys.exit(cs.steer())          # python mine.py run -P quiet-first -- ./program
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from . import _countersteer
from ._countersteer import Record, Table

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_OWN = [sys.executable, "-m", "countersteer"]


def steer(words: Sequence[str] | None = None) -> int:
    """Runs ``steer`` with these arguments, those of this process by default; its exit code. Ctrl-C is the command's from then on."""
    script: str | None = getattr(sys.modules["__main__"], "__file__", None)
    own = _OWN
    if script is not None and Path(script).name not in ("__main__.py", "steer"):
        own = [sys.executable, os.path.abspath(script)]
    _countersteer.give_own(own, _FOLDER)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _countersteer.main(["steer", *(sys.argv[1:] if words is None else words)])


@dataclass(frozen=True)
class Run:
    """What came of programs that ran under a policy.

    ``programs`` has a row for each program: ``program``, ``threads``, ``elapsed_s`` and ``exit_code`` (null while it runs), ``instructions``,
    ``cycles``, ``work`` in its own unit, ``wait_s`` and ``wait_mean_ms`` in run queues, ``wait_p50_ms``, ``wait_p90_ms`` and ``wait_p99_ms``
    (with ``latency``), ``cpu_s``, and ``cpu_s_TYPE`` on each core type, fastest first. ``summary`` has all figures of the run by name, and
    ``planned`` the decisions of a dry run, a line each.
    """

    programs: Table
    summary: dict[str, Any]
    record: Record | None
    planned: list[str]

    @property
    def elapsed_s(self) -> float:
        return self.summary["elapsed_s"]

    @property
    def decisions(self) -> int:
        return self.summary["decisions"]

    @property
    def dropped(self) -> str | None:
        """Why the policy was dropped, if it was; Linux's own scheduler went on."""
        return self.summary["dropped"]

    def __repr__(self) -> str:
        programs = ", ".join(f"{one['name']}: {one['elapsed_s'] or 0:.2f} s" for one in self.summary["programs"])
        return f"Run({programs}; {self.decisions} decisions)"


@dataclass(frozen=True)
class Gain:
    """Gain in speed of all programs of a trial: 0.05 is 5 %.

    ``low`` and ``high`` are the ends of its interval, valid at any time; None while there are too few pairs. ``verdict``: ``faster``,
    ``slower`` or ``equivalent``; None while nothing is certain.
    """

    pairs: int
    gain: float
    low: float | None
    high: float | None
    verdict: str | None


@dataclass(frozen=True)
class Trial:
    """What a trial found.

    ``programs`` has a row for each program: ``program``, and ``pairs``, ``gain``, ``low``, ``high`` and ``verdict`` as those of ``Gain``.
    """

    programs: Table
    all: Gain


@dataclass(frozen=True)
class Threads:
    """Numbers of threads, and cores for them.

    ``default`` is the default's command line. ``trials`` has a row for each candidate that was run: ``threads``, ``chunking``, ``cores``,
    ``cpus``, ``predicted`` with ``predicted_low`` and ``predicted_high`` (seconds; without any run, relative to the default), ``measured_s``.
    ``others`` are the other candidates, best prediction first. ``finals`` has a row for each that was compared with the default: ``threads``,
    ``chunking``, ``cores``, ``cpus``, ``median_s``, ``command``, ``bound`` (with each thread on a CPU of its own), and ``pairs``, ``gain``,
    ``low``, ``high`` and ``verdict`` as those of ``Gain``. ``recommended`` is the command line to use; None where the default is as good, or
    nothing is certain. ``open``: the fraction that one more trial promises.
    """

    default: str
    trials: Table
    others: Table
    finals: Table
    recommended: str | None
    open: float
    warnings: list[str]


def _words(command: Sequence[str | PathLike[str]]) -> list[str]:
    return [fspath(word) for word in command]


def run(
    command: Sequence[str | PathLike[str]] | PathLike[str] | str | None = None,
    policy: str | type = "linux",
    *,
    pid: Sequence[int] | int | None = None,
    cgroup: str | PathLike[str] | None = None,
    period_ms: float = 100,
    seconds: float | None = None,
    engine: str = "affinity",
    seed: int = 1,
    dry_run: bool = False,
    record: str | PathLike[str] | None = None,
    machine: str | None = None,
    foreground: str | None = None,
    latency: bool = False,
) -> Run:
    """Runs a program of this machine under a policy until it ends, or for so many seconds.

    ``command``: the program with its arguments, or the path of a workload's file; or ``pid``: running processes, or ``cgroup``: the
    folder of a control group. ``record``: the folder of a record, which ``read_record`` reads. A policy that raises, hangs or answers
    nonsense is dropped, and the program runs on: ``run.dropped`` has the traceback. ``latency``: percentiles of run-queue latency (root).
    """
    from . import _name

    _countersteer.give_own(_OWN, _FOLDER)
    words: list[str] | None = None
    workload: str | None = None
    if isinstance(command, (str, PathLike)):
        workload = fspath(command)
    elif command is not None:
        words = _words(command)
    programs, summary, planned = _countersteer.run(
        _name(policy),
        command=words,
        workload=workload,
        pid=_several(pid),
        cgroup=cgroup,
        engine=engine,
        period_s=period_ms / 1e3,
        seconds=seconds,
        seed=seed,
        dry_run=dry_run,
        record=record,
        machine=machine,
        foreground=foreground,
        latency=latency,
    )
    return Run(programs, json.loads(summary), _countersteer.read_record(record) if record else None, planned)


def _several(ids: Sequence[int] | int | None) -> list[int] | None:
    return [ids] if isinstance(ids, int) else None if ids is None else list(ids)


def trial(
    command: Sequence[str | PathLike[str]],
    policy: str | type,
    baseline: str | type = "linux",
    *,
    by: str = "wall",
    score: str | None = None,
    pairs: int | None = None,
    seconds: float | None = None,
    until_decided: bool = False,
    confidence: float = 0.95,
    margin: float = 0.01,
    seed: int = 1,
    records: str | PathLike[str] | None = None,
) -> Trial:
    """Compares whole runs of a program under two arms, in pairs of random order.

    ``policy`` and ``baseline``: policies, or commands that start the program (``"taskset -c 0-3"``). ``by``: ``wall``, ``latency`` or
    ``latency-p99``; ``score``: a command that prints a figure after each run, greater is better. The programs' output is discarded.
    """
    from . import _name

    _countersteer.give_own(_OWN, _FOLDER)
    programs, all = _countersteer.trial(
        _words(command),
        _name(policy),
        _name(baseline),
        by=by,
        score=score,
        pairs=pairs,
        seconds=seconds,
        until_decided=until_decided,
        confidence=confidence,
        margin=margin,
        seed=seed,
        records=records,
    )
    return Trial(programs, Gain(*all))


def threads(
    command: Sequence[str | PathLike[str]],
    *,
    on: Sequence[str] = ("all",),
    env: Sequence[str] = (),
    chunk: Sequence[str] = (),
    trials: int | None = None,
    seconds: float = 60,
    margin: float = 0.01,
    machine: str | None = None,
    seed: int = 1,
    predict: bool = False,
) -> Threads | None:
    """Finds how many threads a program should run with, and on which cores, as ``steer threads``.

    ``{threads}`` in the command or in a value of ``env`` stands for the number, ``{chunk}`` for a chunking. ``predict``: the times that the
    model expects, without a run; ``machine`` can then be any machine. ``None`` if a signal ended the search before the first run.
    """
    found = _countersteer.threads(
        _words(command),
        on=list(on),
        env=list(env),
        chunk=list(chunk),
        trials=trials,
        seconds=seconds,
        margin=margin,
        machine=machine,
        seed=seed,
        predict=predict,
    )
    return None if found is None else Threads(*found)
