"""Profiles of programs: what ``steer profile`` records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from . import _countersteer
from ._countersteer import Table
from .program import _FOLDER, _OWN


def profile(
    command: Sequence[str | PathLike[str]],
    output: str | PathLike[str],
    *,
    name: str | None = None,
    max_instructions: int | None = None,
    sampled: bool = False,
) -> Profile:
    """Runs a program under instrumentation and keeps its profile in the file ``output``.

    The program has no input, and its output is discarded. ``sampled``: faster, and the profile has the error of each figure.
    """
    _countersteer.give_own(_OWN, _FOLDER)
    _countersteer.record_profile([fspath(word) for word in command], fspath(output), name, max_instructions, sampled)
    return Profile.load(output)


class Profile:
    """What a program executes and touches: ``data`` is the file, checked. A workload's ``profile`` names the ``path``."""

    def __init__(self, path: Path, data: dict[str, Any]):
        self.path = path
        self.data = data

    @property
    def name(self) -> str:
        return self.data["name"]

    @staticmethod
    def load(path: str | PathLike[str]) -> Profile:
        """A profile's file, recorded or tabulated."""
        return Profile(Path(path), json.loads(_countersteer.profile(path)))

    record = staticmethod(profile)

    def misses(self, *sizes: int) -> dict[int, float]:
        """Misses per kilo-instruction by the size in bytes of a fully associative cache; 16 KiB to 16 MiB by default."""
        wanted = list(sizes) or [1024 << log for log in range(4, 15)]
        return dict(zip(wanted, _countersteer.misses(self.path, wanted), strict=True))

    def __repr__(self) -> str:
        return f"Profile({self.name}: {self.path})"


@dataclass(frozen=True)
class Shares:
    """What programs get of a shared last-level cache.

    ``programs`` has a row for each program and size: ``program``, ``cache_bytes`` (the size), ``bytes`` (its share), ``mpki`` and ``ipc``
    there, and ``mpki_alone`` and ``ipc_alone`` with the whole cache.
    """

    programs: Table
    core_type: str


def mrc(machine: str, *profiles: Profile | str | PathLike[str], sizes: Sequence[int] = ()) -> Shares:
    """Predicts what each of several programs gets of a shared last-level cache of these sizes (the machine's own by default)."""
    paths = [fspath(one.path if isinstance(one, Profile) else one) for one in profiles]
    return Shares(*_countersteer.shares(machine, paths, list(sizes)))
