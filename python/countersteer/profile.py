"""Profiles of programs: what ``steer profile`` records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from .program import ask


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
        return Profile(Path(path), json.loads(ask("profile", "show", path, "--json")))

    @staticmethod
    def record(
        command: Sequence[str | PathLike[str]],
        output: str | PathLike[str],
        *,
        name: str | None = None,
        max_instructions: int | None = None,
    ) -> Profile:
        """Runs a program under instrumentation (qemu-user must be installed) and keeps its profile in the file ``output``."""
        words = ["profile", "-o", fspath(output)]
        words += ["--name", name] if name else []
        words += ["--max-instructions", str(max_instructions)] if max_instructions else []
        ask(*words, "--", *command)
        return Profile.load(output)

    def __repr__(self) -> str:
        return f"Profile({self.name}: {self.path})"
