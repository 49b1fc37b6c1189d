"""Models of speed-up and energy factors: what ``steer model`` does."""

from __future__ import annotations

import json
from collections.abc import Iterable
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from .program import ask


def _about(machines: Iterable[str], records: Iterable[str | PathLike[str]]) -> list[str]:
    paths = [fspath(one) for one in records]
    return [*machines, *(["--from", *paths] if paths else [])]


def train(*machines: str, output: str | PathLike[str], records: Iterable[str | PathLike[str]] = ()) -> list[Path]:
    """Trains on recorded programs that are simulated on machines, or on records of programs that ran alone; the models' files.

    Policies find models in ``~/.local/share/countersteer/models``, before the shipped ones.
    """
    ask("model", "train", "-o", output, *_about(machines, records))
    return sorted(Path(output).glob("*/*.toml"))


def eval(*machines: str, records: Iterable[str | PathLike[str]] = ()) -> list[dict[str, Any]]:
    """Judges models on families of programs that they have not seen, beside yardsticks; a row for each core type and target."""
    return json.loads(ask("model", "eval", "--json", *_about(machines, records)))


def known() -> list[dict[str, Any]]:
    """One's own models and the shipped ones."""
    return json.loads(ask("model", "list", "--json"))


def load(path: str | PathLike[str]) -> dict[str, Any]:
    """A model: its ratios and what each adds."""
    return json.loads(ask("model", "show", path, "--json"))
