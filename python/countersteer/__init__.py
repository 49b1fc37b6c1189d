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
from .profile import Profile, mrc
from .program import Run, run, steer, threads, trial
from .sweep import sweep

__all__ = [
    "Comparison", "CountersteerError", "Experiment", "Machine", "Profile", "Record", "Run", "Samples", "Stat", "Table", "View", "Workload",
    "blame", "cases", "compare", "count", "machines", "models", "mrc", "policies", "policy", "read_record", "reproduce", "run", "stat", "steer", "sweep", "threads", "top", "trial",
    "workloads",
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


def blame(
    machine: Machine | str | PathLike,
    workload: Workload | str | PathLike,
    policy: str | type = "linux",
    seeds: int = 3,
    *,
    instead: Iterable[str | type] = ("mpi", "joint"),
    **options: Any,
) -> dict[str, Any]:
    """Who slows down whom, and by how much: the programs, their slowdowns, ``caused[victim][cause]``, other policies, a partition."""
    experiment = Experiment(_machine(machine), _workload(workload), _name(policy), 1, **options)
    return json.loads(experiment.blame_json(seeds, [_name(one) for one in instead]))


def reproduce(name: str) -> list[dict[str, Any]]:
    """Runs a paper's experiment again (``cs.cases()`` names them): each case with its findings, the paper's figure beside ours."""
    return json.loads(_countersteer.reproduce(name))
