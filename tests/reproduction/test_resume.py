"""What a run keeps when it is killed, torn, damaged or asked for twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.reproduction.toy import N_UNITS, sleeping

from reproduction import QUICK, Settings, run_experiments
from reproduction.executors import Processes, Serial
from reproduction.store import append_line, locked, read_lines

TOP = Path(__file__).parents[2]
SEED = Settings(seed=5)


def unit_lines(path):
    return [line for line in path.read_text(encoding="utf-8").splitlines() if '"unit"' in line]


def start(folder, seconds, jobs):
    paths = os.pathsep.join([str(TOP / "src"), str(TOP), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-m", "tests.reproduction.toy", str(folder), str(seconds), str(jobs)],
        env=os.environ | {"PYTHONPATH": paths},
        cwd=TOP,
        stdout=subprocess.DEVNULL,
    )


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The folder of a run that was killed, its process, and what was said to another that wanted
    the folder before."""
    folder = tmp_path_factory.mktemp("killed")
    results = folder / "toy-sleep.jsonl"
    # One process; of two the interrupt has a test, and what they write is written by the first
    # alone.
    process = start(folder, 0.2, 1)
    try:
        deadline = time.monotonic() + 60
        while not (results.exists() and len(unit_lines(results)) >= 3):
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        with pytest.raises(OSError, match="in use") as refused:
            run_experiments([sleeping()], folder, SEED)
    finally:
        process.kill()
        process.wait()
    return folder, process, str(refused.value)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a signal that cannot be caught")
def test_a_killed_run_loses_only_the_units_in_flight(killed, tmp_path):
    shutil.copytree(killed[0], tmp_path / "run")
    results = tmp_path / "run" / "toy-sleep.jsonl"
    kept = len(unit_lines(results))
    assert 3 <= kept < N_UNITS

    calls = tmp_path / "calls"
    (done,) = run_experiments([sleeping(calls=str(calls))], tmp_path / "run", SEED)
    assert len(calls.read_text().splitlines()) == N_UNITS - kept
    counted = Counter(tuple(json.loads(line)["content"]["unit"]) for line in unit_lines(results))
    assert len(counted) == N_UNITS
    assert set(counted.values()) == {1}

    (whole,) = run_experiments([sleeping()], tmp_path / "whole", SEED)
    assert done.rows == whole.rows
    assert (tmp_path / "run" / "toy-sleep.csv").read_bytes() == (
        tmp_path / "whole" / "toy-sleep.csv"
    ).read_bytes()


def flip_a_digit(line):
    place = line.index(b'"draw",0.') + len(b'"draw",0.')
    return line[:place] + (b"1" if line[place : place + 1] != b"1" else b"2") + line[place + 1 :]


@pytest.mark.parametrize(
    ("number", "damage", "word"),
    [
        pytest.param(-1, lambda line: line[: len(line) // 2], "torn", id="torn"),
        pytest.param(4, flip_a_digit, "checksum", id="one-digit"),
        pytest.param(4, lambda line: b"\xff\x00garbage\n", "not what was written", id="garbage"),
        pytest.param(0, lambda line: b"[]\n", "not what was written", id="header"),
    ],
)
def test_a_damaged_line_is_reported_set_aside_and_its_unit_run_again(
    tmp_path, number, damage, word
):
    (whole,) = run_experiments([sleeping()], tmp_path, SEED)
    path = tmp_path / "toy-sleep.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[number] = damage(lines[number])
    path.write_bytes(b"".join(lines))
    calls = tmp_path / "calls"
    where = f"toy-sleep.jsonl, line {number + 1 if number >= 0 else len(lines)} .*{word}"
    with pytest.warns(RuntimeWarning, match=where) as caught:
        (again,) = run_experiments([sleeping(calls=str(calls))], tmp_path, SEED)
    assert len(caught) == 1
    assert (len(calls.read_text().splitlines()) if calls.exists() else 0) == (number != 0)
    assert again.rows == whole.rows
    assert (tmp_path / "toy-sleep.jsonl.damaged").read_bytes().rstrip(b"\n") == lines[
        number
    ].rstrip(b"\n")
    # It is mended: nothing is left to report or to run.
    calls.unlink(missing_ok=True)
    run_experiments([sleeping(calls=str(calls))], tmp_path, SEED)
    assert not calls.exists()


def test_lines_come_back_as_they_were(tmp_path):
    path = tmp_path / "file.jsonl"
    contents = [{"value": 0.1 + 0.2, "text": "β\n"}, {"list": [1, None, True]}]
    for content in contents:
        append_line(path, content)
    assert read_lines(path) == contents
    assert read_lines(tmp_path / "none") == []


def test_two_processes_cannot_write_one_run(killed):
    folder, process, said = killed
    assert f"in use by another process (number {process.pid})" in said
    with locked(folder):
        pass


@pytest.mark.parametrize(
    ("settings", "word"),
    [(Settings(seed=6), "seed 5 at full"), (Settings(5, QUICK), "not seed 5 at quick")],
)
def test_another_seed_or_scale_is_refused(tmp_path, settings, word):
    run_experiments([sleeping()], tmp_path, SEED)
    with pytest.raises(ValueError, match=word):
        run_experiments([sleeping()], tmp_path, settings)


def test_another_definition_is_refused(tmp_path):
    from dataclasses import replace

    run_experiments([sleeping()], tmp_path, SEED)
    with pytest.raises(ValueError, match=r"toy-sleep\.jsonl was made by another definition"):
        run_experiments([replace(sleeping(), version=2)], tmp_path, SEED)


def test_a_run_folder_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run\.json cannot be read"):
        run_experiments([sleeping()], tmp_path, SEED)


def test_another_experiment_joins_a_run(tmp_path):
    run_experiments([sleeping("one")], tmp_path, SEED)
    both = run_experiments([sleeping("two"), sleeping("one")], tmp_path, SEED)
    assert [done.experiment.name for done in both] == ["two", "one"]
    assert all(len(done.records) == N_UNITS for done in both)


def test_failed_units_are_kept_and_tried_again(tmp_path):
    (done,) = run_experiments([sleeping(failing=(2, 7))], tmp_path, SEED)
    assert [record.unit.replicate for record in done.failures] == [2, 7]
    assert (
        done.failures[0].failure
        == "FileNotFoundError: toy.npz is not there; fetch it from https://example.org."
    )
    assert done.rows[0].count == N_UNITS - 2
    calls = tmp_path / "calls"
    (done,) = run_experiments([sleeping(calls=str(calls))], tmp_path, SEED)
    assert sorted(line.split()[0] for line in calls.read_text().splitlines()) == ["2", "7"]
    assert done.failures == []
    assert done.rows[0].count == N_UNITS


def test_long_units_of_all_experiments_come_first_then_whole_experiments(tmp_path):
    calls = tmp_path / "calls"

    class Noting(Serial):
        def records(self, tasks):
            calls.write_text(" ".join(task.unit.experiment for task in tasks))
            return super().records(tasks)

    short, middle, long = (
        replace(sleeping(f"toy-{pace:g}"), pace=pace) for pace in (1.0, 2.0, 50.0)
    )
    run_experiments([short, long, middle], tmp_path / "run", SEED, Noting())
    order = [short.name, middle.name, long.name]
    assert calls.read_text().split() == [
        name for name in (order[2], order[0], order[1]) for _ in range(N_UNITS)
    ]


def test_processes_give_what_one_gives(tmp_path):
    (here,) = run_experiments([sleeping()], tmp_path / "a", SEED)
    calls = tmp_path / "calls"
    (there,) = run_experiments(
        [sleeping(seconds=0.1, calls=str(calls))], tmp_path / "b", SEED, Processes(2)
    )
    assert here.rows == there.rows
    workers = {line.split()[1] for line in calls.read_text().splitlines()}
    assert len(workers) == 2
    assert str(os.getpid()) not in workers


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a signal that cannot be caught")
def test_a_process_that_dies_ends_the_run_but_not_what_it_has(tmp_path):
    with pytest.raises(ChildProcessError, match="one of 2 processes died"):
        run_experiments([sleeping(seconds=0.05, deadly=(8,))], tmp_path, SEED, Processes(2))
    assert 0 < len(unit_lines(tmp_path / "toy-sleep.jsonl")) < N_UNITS
    (done,) = run_experiments([sleeping()], tmp_path, SEED)
    assert done.failures == []
