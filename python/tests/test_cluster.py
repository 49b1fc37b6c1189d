"""Sweeps on a cluster of Dask workers, one of which is killed on the way."""

import os
import signal

import pytest

import countersteer as cs

distributed = pytest.importorskip("distributed", reason="Dask is not installed")

GRID = {
    "machines": ["quickia-2b-2s"],
    "policies": ["linux", "aarr"],
    "chunk": 2,
    "mixes": {"count": 20, "programs": 4},
    "options": {"rounds": 1},
}


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.glob("*.parquet")}


def test_a_killed_worker_costs_no_experiment_and_doubles_none(tmp_path):
    alone, together = tmp_path / "alone", tmp_path / "together"
    chunks = cs.sweep(GRID, alone)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        pids = list(client.run(os.getpid).values())

        def kill_one(done, _):
            if done == 2:
                os.kill(pids[0], signal.SIGKILL)

        assert cs.sweep(GRID, together, client=client, progress=kill_one) == chunks
    assert contents(alone) == contents(together) and len(contents(alone)) == 2 * chunks
