"""Countersteer: which scheduling policy serves programs best on a machine, simulated.

>>> import countersteer as cs
>>> result = cs.compare("quickia-2b-2s", "unequal-cores", ["linux", "hsf"], seeds=1, rounds=1)
>>> len(result.scores), result.scores.columns[:4]
(2, ['machine', 'workload', 'policy', 'seed'])

Tables (``result.scores``, ``result.programs``, ``record.table("decisions")``) speak the Arrow PyCapsule interface:
``polars.DataFrame(t)``, ``pyarrow.table(t)``, ``duckdb.sql("from t")`` take them as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

from . import _countersteer, models
from ._countersteer import (
    Comparison,
    CountersteerError,
    Experiment,
    Machine,
    Record,
    Samples,
    Table,
    Workload,
    cases,
    machines,
    policies,
    read_record,
    workloads,
)
from .counting import Stat, count, stat, top
from .policy import View, policy
from .profiles import Profile, Shares, mrc, profile
from .program import Gain, Run, Threads, Trial, run, steer, threads, trial
from .sweep import sweep

__all__ = [
    "Blame", "Comparison", "CountersteerError", "Experiment", "Gain", "Machine", "Profile", "Record", "Run", "Samples", "Shares", "Stat",
    "Table", "Threads", "Trial", "View", "Workload", "blame", "cases", "compare", "count", "machines", "models", "mrc", "policies", "policy",
    "profile", "read_record", "reproduce", "run", "stat", "steer", "sweep", "threads", "top", "trial", "workloads",
]


def _machine(machine: Machine | str | PathLike) -> Machine:
    return machine if isinstance(machine, Machine) else Machine.load(fspath(machine))


def _workload(workload: Workload | str | PathLike) -> Workload:
    return workload if isinstance(workload, Workload) else Workload.load(fspath(workload))


def _several(value: Any) -> list[Any]:
    return [value] if isinstance(value, (str, PathLike, Machine, Workload, type)) else list(value)


def _name(policy: str | type) -> str:
    """The name of a policy: a string as it is, or that of a class that ``countersteer.policy`` added."""
    return policy if isinstance(policy, str) else getattr(policy, "policy_name")


def compare(
    machine: Machine | str | PathLike | Iterable[Machine | str | PathLike],
    workload: Workload | str | PathLike | Iterable[Workload | str | PathLike],
    policies: str | type | Iterable[str | type],
    seeds: int = 3,
    *,
    record: bool = False,
    **options: Any,
) -> Comparison:
    """Every policy on every machine with every workload, with seeds 1 to ``seeds``.

    ``machine`` and ``workload``: names, files, objects, or lists of these. ``policies``: names (``"hsf:margin=0.1"``) or classes.
    ``options`` are those of the simulation (``rounds``, ``period_ms``, ``kernel``, ``max_seconds``, ...).
    """
    experiments = [
        Experiment(one, load, _name(policy), seed, record=record, **options)
        for one in map(_machine, _several(machine))
        for load in map(_workload, _several(workload))
        for policy in _several(policies)
        for seed in range(1, seeds + 1)
    ]
    return Comparison.of(experiments)


@dataclass(frozen=True)
class Blame:
    """Who slows down whom: 1.1 is a tenth more time than alone on the whole machine, and 0.1 a tenth more with a cause than without it.

    ``programs`` has a row for each program: ``program``, ``slowdown``; ``caused`` one for each pair: ``victim``, ``cause``, ``slowdown``;
    ``places`` one for each other policy and program: ``policy``, ``program``, ``slowdown``. ``partition`` of the last-level cache:
    ``program``, ``ways``, ``slowdown`` by its misses there; None where no cache is shared.
    """

    programs: Table
    caused: Table
    places: Table
    partition: Table | None


def blame(
    machine: Machine | str | PathLike,
    workload: Workload | str | PathLike,
    policy: str | type = "linux",
    seeds: int = 3,
    *,
    instead: Iterable[str | type] = ("mpi", "joint"),
    **options: Any,
) -> Blame:
    """Who slows down whom, and by how much; under the policies ``instead`` as well, and with a partition of the cache."""
    experiment = Experiment(_machine(machine), _workload(workload), _name(policy), 1, **options)
    return Blame(*experiment.blame(seeds, [_name(one) for one in instead]))


def reproduce(name: str) -> list[dict[str, Any]]:
    """Runs a paper's experiment again (``cs.cases()`` names them): each case with its findings, the paper's figure beside ours."""
    return json.loads(_countersteer.reproduce(name))
