"""Models of speed-up and energy factors: training, evaluation, lists."""

from __future__ import annotations

import json
from collections.abc import Iterable
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from . import _countersteer


def train(*machines: str, output: str | PathLike[str], records: Iterable[str | PathLike[str]] = ()) -> list[Path]:
    """Trains on recorded programs that are simulated on machines, or on records of programs that ran alone; the models' files.

    Policies find models in ``~/.local/share/countersteer/models``, before the shipped ones.
    """
    return [Path(path) for path in _countersteer.train_models(list(machines), [fspath(one) for one in records], fspath(output))]


def eval(*machines: str, records: Iterable[str | PathLike[str]] = ()) -> list[dict[str, Any]]:
    """Judges models on families of programs that they have not seen, beside yardsticks; a row for each core type and target."""
    return json.loads(_countersteer.judge_models(list(machines), [fspath(one) for one in records]))


def known() -> list[dict[str, Any]]:
    """One's own models and the shipped ones."""
    return json.loads(_countersteer.known_models())


def load(path: str | PathLike[str]) -> dict[str, Any]:
    """A model: its ratios and what each adds."""
    return json.loads(_countersteer.model(fspath(path)))
