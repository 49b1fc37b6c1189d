"""Sweeps: grids of experiments, in this process or on a cluster.

A grid is a TOML file, as ``steer sweep`` takes it, or a dictionary of the same shape::

    grid = {"machines": ["i9-12900k-8p8e"], "policies": ["linux", "hsf"], "mixes": {"count": 1000, "programs": 16}}
    cs.sweep(grid, "results")                     # threads of this process
    cs.sweep(grid, "results", client=client)      # a dask.distributed.Client: local, SSH, Slurm
    polars.scan_parquet("results/scores-*.parquet")

Chunks that the folder has already are not run again, so an interrupted sweep goes on where it stopped. Workers on other machines
need the folder under the same path.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from . import _countersteer


def _toml(value: Any) -> str:
    """A value as TOML: what a grid is made of is JSON but for tables."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def grid_text(grid: dict[str, Any] | str | PathLike) -> str:
    """The text of a grid's file."""
    if isinstance(grid, dict):
        return "".join(f"{key} = {_toml(value)}\n" for key, value in grid.items())
    return Path(fspath(grid)).read_text()


def sweep(
    grid: dict[str, Any] | str | PathLike,
    folder: str | PathLike,
    *,
    client: Any = None,
    jobs: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> int:
    """Runs the chunks that ``folder`` lacks; their number.

    ``client``: a ``dask.distributed.Client``; a worker that is killed loses nothing, since its chunks are run by others.
    ``jobs``: threads of this process, as many as CPUs by default. ``progress(done, all)`` is called after each chunk.
    """
    text, folder = grid_text(grid), os.path.abspath(fspath(folder))
    missing = _countersteer.chunks(text, folder)
    done = 0

    def tick(_: object) -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, len(missing))

    if client is not None:
        from dask.distributed import as_completed as finished

        shared = client.scatter(text, broadcast=True)
        futures = [client.submit(_countersteer.run_chunk, shared, folder, chunk, pure=False, retries=3) for chunk in missing]
        for future in finished(futures):
            tick(future.result())
        return len(missing)
    with ThreadPoolExecutor(jobs or len(os.sched_getaffinity(0))) as pool:
        futures = [pool.submit(_countersteer.run_chunk, text, folder, chunk) for chunk in missing]
        try:
            for future in as_completed(futures):
                tick(future.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return len(missing)
