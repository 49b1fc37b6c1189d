"""Counting events: round a region of Python code, of programs, and of running processes.

>>> import countersteer as cs
>>> with cs.count("task_clock,page_faults") as counts:
...     sum(range(100_000))
4999950000
>>> counts["task_clock"] > 0
True
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from typing import Any

from . import _countersteer
from ._countersteer import Counters, Samples, Table


class count:
    """Counts events of this thread, and of threads that it starts, between entering and leaving; entered again, it adds up.

    ``events`` are those of ``steer stat -e`` (``steer events`` lists them). After the region ``counts["instructions"]`` is the sum over core
    types, ``counts.rows`` has (event, core type, value, ns enabled, ns running) as counted, never scaled. A value is None where nothing
    could count it.
    """

    def __init__(self, events: str, *, inherit: bool = True):
        self._counters = Counters(events, inherit)
        self.rows: list[tuple[str, str | None, int | None, int, int]] = []

    def __enter__(self) -> "count":
        self._counters.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._counters.stop()
        self.rows = self._counters.read()

    def __getitem__(self, event: str) -> int | None:
        values = [value for name, _, value, _, _ in self.rows if name == event]
        if not values:
            raise KeyError(f"`{event}` was not counted; {', '.join(name for name, *_ in self.rows) or 'the region has not ended'}")
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    def __repr__(self) -> str:
        return "count(" + ", ".join(f"{name}{f' on {core}' if core else ''}: {value}" for name, core, value, _, _ in self.rows) + ")"


class Stat:
    """What was counted: ``rows`` is a table with a row for each value, ``exit_code`` that of a started program."""

    def __init__(self, rows: Table, elapsed_s: float, user_s: float, system_s: float, exit_code: int | None):
        self.rows = rows
        self.elapsed_s = elapsed_s
        self.user_s = user_s
        self.system_s = system_s
        self.exit_code = exit_code

    def __repr__(self) -> str:
        return f"Stat({len(self.rows)} values in {self.elapsed_s:.2f} s)"


def _options(
    command: Sequence[str | PathLike[str]] | None,
    pid: Sequence[int] | int | None,
    tid: Sequence[int] | int | None,
    cgroup: str | PathLike[str] | None,
    events: Sequence[str] | str,
    metrics: Sequence[str] | str,
    virtual: Sequence[str] | str,
    modules: Sequence[str | PathLike[str]],
    interval_ms: float | None,
    every: str | None,
    seconds: float | None,
    per: str | None,
    cpus: str | None,
) -> dict[str, Any]:
    sets = lambda given: [given] if isinstance(given, str) else list(given)
    ids = lambda given: [given] if isinstance(given, int) else None if given is None else list(given)
    return {
        "command": None if command is None else [fspath(word) for word in command],
        "pid": ids(pid),
        "tid": ids(tid),
        "cgroup": cgroup,
        "events": sets(events),
        "metrics": sets(metrics),
        "virtual_": sets(virtual),
        "modules": list(modules),
        "interval_s": None if interval_ms is None else interval_ms / 1e3,
        "every": every,
        "seconds": seconds,
        "per": per,
        "cpus": cpus,
    }


def stat(
    command: Sequence[str | PathLike[str]] | None = None,
    *,
    pid: Sequence[int] | int | None = None,
    tid: Sequence[int] | int | None = None,
    cgroup: str | PathLike[str] | None = None,
    events: Sequence[str] | str = (),
    metrics: Sequence[str] | str = (),
    virtual: Sequence[str] | str = (),
    modules: Sequence[str | PathLike[str]] = (),
    interval_ms: float | None = None,
    every: str | None = None,
    seconds: float | None = None,
    per: str | None = None,
    cpus: str | None = None,
) -> Stat:
    """Counts a program and all its threads until it ends, or running processes, threads, a control group, or all CPUs.

    ``events``: sets of events, one text each (``"instructions,cycles"``); several sets are multiplexed, one per interval. ``metrics``: names or
    formulas (``"ipc"``). ``virtual``: virtual counters, read at the end of each interval. ``every``: ``"100M:instructions"`` instead of an
    interval. ``per``: ``thread``, ``process``, ``cpu`` or ``total``. Rows: end of the interval, time counted, pid, tid, cpu, name, core type,
    counter, value.

    >>> import countersteer as cs
    >>> found = cs.stat(["true"], events="task_clock")
    >>> found.exit_code, found.rows.columns[-2:]
    (0, ['counter', 'value'])
    """
    options = _options(command, pid, tid, cgroup, events, metrics, virtual, modules, interval_ms, every, seconds, per, cpus)
    return Stat(*_countersteer.stat(options))


def top(
    command: Sequence[str | PathLike[str]] | None = None,
    *,
    pid: Sequence[int] | int | None = None,
    tid: Sequence[int] | int | None = None,
    cgroup: str | PathLike[str] | None = None,
    events: Sequence[str] | str = (),
    metrics: Sequence[str] | str = (),
    virtual: Sequence[str] | str = (),
    modules: Sequence[str | PathLike[str]] = (),
    interval_ms: float = 1000,
    seconds: float | None = None,
    per: str | None = None,
    cpus: str | None = None,
) -> Samples:
    """Counts as ``stat`` does, and yields the table of each interval while counting goes on; ``stop()`` ends it, and a started program.

    >>> import countersteer as cs
    >>> for rows in cs.top(["sleep", "0.2"], events="task_clock", interval_ms=50):
    ...     table = rows  # polars.DataFrame(rows), pyarrow.table(rows), ...
    """
    options = _options(command, pid, tid, cgroup, events, metrics, virtual, modules, interval_ms, None, seconds, per, cpus)
    return Samples(options)
