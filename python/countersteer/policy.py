"""Policies: classes that decide where threads run.

A policy is a class with a method ``decide``. It runs in the simulator, by
``countersteer.run`` on real threads, and in a program that calls ``countersteer.steer``::

    import numpy as np
    import countersteer as cs

    @cs.policy
    class QuietFirst:
        "The fastest cores for threads that miss least."
        metrics = ["llc_mpki"]
        params = {"limit": 1.0}

        def decide(self, view):
            fast, slow = view.types[0], view.types[-1]
            return np.where(view.metric("llc_mpki") < self.limit, fast, slow)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from . import _countersteer

if TYPE_CHECKING:  # numpy takes longer to import than all else here
    import numpy as np

#: A core group: id, name, kind (``core-type``, ``llc``, ``node``) and CPUs.
Group = tuple[int, str, str, list[int]]
Policy = TypeVar("Policy", bound=type)


class View:
    """What a policy sees: one row for each live thread, in the same order in all arrays.

    ``thread``, ``program``, ``cpu``, ``nice``: integers. ``runnable``: booleans. ``core_type``: the type of the thread's CPU, 0 is the
    fastest. ``types``, ``llcs``, ``nodes``: ids of core groups, which are places. ``programs``: name by id. ``now_s``: seconds since the
    start. ``machine`` has all core groups as (id, name, kind, CPUs).
    """

    __slots__ = ("now_s", "programs", "types", "llcs", "nodes", "machine", "_columns", "_metrics", "_rows")

    def __init__(
        self,
        now_s: float,
        rows: int,
        columns: Mapping[str, bytes],
        metrics: Mapping[str, bytes],
        programs: Iterable[tuple[int, str]],
        groups: Sequence[Group],
    ) -> None:
        self.now_s = now_s
        self.programs = dict(programs)
        self.machine = groups
        self._rows = rows
        self._columns = columns
        self._metrics = metrics
        import numpy as np

        def kind(wanted: str) -> np.ndarray:
            return np.array([id for id, _, by, _ in groups if by == wanted], dtype=np.int64)

        self.types, self.llcs, self.nodes = kind("core-type"), kind("llc"), kind("node")

    def __len__(self) -> int:
        return self._rows

    def __getattr__(self, name: str) -> np.ndarray:
        if name.startswith("_") or name not in self._columns:
            raise AttributeError(f"a view has no `{name}`; columns are {', '.join(self._columns)}")
        import numpy as np

        values = np.frombuffer(self._columns[name], dtype=np.int64)
        return values.astype(bool) if name == "runnable" else values

    def metric(self, name: str) -> np.ndarray:
        """The latest value for each thread; NaN where nothing was counted. The policy must list the name in ``metrics``."""
        if name not in self._metrics:
            raise KeyError(f"the policy does not list `{name}` in `metrics`")
        import numpy as np

        return np.frombuffer(self._metrics[name], dtype=np.float64)

    @property
    def stay(self) -> np.ndarray:
        """An answer in which every thread stays where it was placed."""
        import numpy as np

        return np.full(self._rows, -1, dtype=np.int64)


class _Decider:
    """One instance of a policy on one machine: checks what the class returns."""

    def __init__(self, cls: Any, groups: Sequence[Group], params: Mapping[str, str]) -> None:
        import numpy as np

        self._groups = groups
        self._known = np.array(sorted(group[0] for group in groups), dtype=np.int64)
        self._object = cls.__new__(cls)
        for key, default in _params(cls).items():
            setattr(self._object, key, _as(default, params[key], key))
        self._object.__init__()
        self._rule = (cls.__doc__ or cls.__name__).strip().splitlines()[0]

    def _decide(
        self,
        now_s: float,
        rows: int,
        columns: Mapping[str, bytes],
        metrics: Mapping[str, bytes],
        programs: Iterable[tuple[int, str]],
    ) -> tuple[list[int], str]:
        import numpy as np

        view = View(now_s, rows, columns, metrics, programs, self._groups)
        answer = self._object.decide(view)
        places, rule = answer if isinstance(answer, tuple) else (answer, self._rule)
        places = np.asarray(places)
        if places.shape != (rows,):
            raise ValueError(f"decide must return one place for each of {rows} threads, not an array of shape {places.shape}")
        if not np.issubdtype(places.dtype, np.integer):
            raise TypeError(f"places must be integers (ids of core groups, -1 to stay), not {places.dtype}")
        unknown = places[(places >= 0) & ~np.isin(places, self._known)]
        if unknown.size:
            raise ValueError(f"there is no core group {unknown[0]}; ids are {self._known.tolist()}")
        return places.tolist(), str(rule)


def _params(cls: type) -> dict[str, Any]:
    return getattr(cls, "params", {})


def _as(default: Any, text: str, key: str) -> Any:
    """The value of a parameter, of the type of its default."""
    if isinstance(default, bool):
        words = {"true": True, "on": True, "false": False, "off": False}
        if text.lower() not in words:
            raise ValueError(f"parameter `{key}` must be true or false, not `{text}`")
        return words[text.lower()]
    return type(default)(text)


def policy(cls: Policy) -> Policy:
    """Adds a class to the policies under its name in kebab case, or ``cls.name``; a class of the same name is replaced."""
    if not callable(getattr(cls, "decide", None)):
        raise TypeError(f"{cls.__name__} has no method `decide(self, view)`")
    name = getattr(cls, "name", None) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()
    _countersteer.add_policy(
        name,
        (cls.__doc__ or cls.__name__).strip().splitlines()[0],
        lambda groups, params: _Decider(cls, groups, params),
        list(getattr(cls, "metrics", [])),
        [(key, str(default)) for key, default in _params(cls).items()],
        events=bool(getattr(cls, "events", False)),
        period_ms=getattr(cls, "period_ms", None),
        limit_s=float(getattr(cls, "limit_s", 5)),
    )
    setattr(cls, "policy_name", name)
    return cls
