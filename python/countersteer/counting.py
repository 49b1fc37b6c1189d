"""Counting events round a region of Python code.

>>> import countersteer as cs
>>> with cs.count("task_clock,page_faults") as counts:
...     sum(range(100_000))
4999950000
>>> counts["task_clock"] > 0
True
"""

from __future__ import annotations

from ._countersteer import Counters


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

    def __exit__(self, *_) -> None:
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
