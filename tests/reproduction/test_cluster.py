"""Units on a Dask cluster, and the death of a worker."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from tests.reproduction.toy import N_UNITS, sleeping

from reproduction import Settings, make_executor, run_experiments
from reproduction.executors import Cluster

pytest.importorskip("distributed")

SEED = Settings(seed=5)


def test_a_worker_that_dies_costs_a_recomputation_only(tmp_path):
    (here,) = run_experiments([sleeping()], tmp_path / "here", SEED)
    calls = tmp_path / "calls"
    killed = []

    def kill_one():
        """Kill the worker that runs the first unit while it does."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            lines = calls.read_text().splitlines() if calls.exists() else []
            if lines and lines[0].count(" ") == 1:
                killed.append(int(lines[0].split()[1]))
                os.kill(killed[0], signal.SIGKILL)
                return
            time.sleep(0.01)

    killer = threading.Thread(target=kill_one)
    killer.start()
    experiment = sleeping(seconds=0.4, calls=str(calls))
    # One worker: the one that is started in its place does the rest.
    (there,) = run_experiments([experiment], tmp_path / "there", SEED, make_executor(1, "local"))
    killer.join()
    assert killed
    assert killed[0] != os.getpid()
    assert there.failures == []
    assert there.rows == here.rows
    runs = [line.split() for line in calls.read_text().splitlines()]
    assert len(runs) > N_UNITS
    assert {int(number) for number, _ in runs} == set(range(N_UNITS))
    # The unit that died was run again, by another worker.
    again = [int(worker) for number, worker in runs if number == runs[0][0]]
    assert len(again) > 1
    assert killed[0] not in again[1:]


def test_a_local_cluster_has_as_many_workers_as_it_is_told():
    assert make_executor(3, "local") == Cluster("local", 3)


def test_failures_come_back_from_a_cluster_at_an_address(tmp_path):
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        executor = make_executor(1, cluster.scheduler_address)
        assert executor.n_workers == 1
        (done,) = run_experiments([sleeping(failing=(3,))], tmp_path, SEED, executor)
    assert [record.unit.replicate for record in done.failures] == [3]
    assert "fetch it from" in done.failures[0].failure


def test_no_scheduler_is_an_error_that_says_what_to_give():
    with pytest.raises(OSError, match=r"no Dask scheduler answers at 'tcp://127\.0\.0\.1:9'"):
        make_executor(1, "tcp://127.0.0.1:9", timeout=0.2)
