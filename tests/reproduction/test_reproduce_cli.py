"""``python -m reproduction`` as a user meets it."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.reproduction.toy import gaussians, sleeping

from reproduction import EXPERIMENTS
from reproduction.__main__ import main

TOP = Path(__file__).parents[2]


@pytest.fixture
def toys():
    """The catalogue with toys in it, and nothing else; put back in its order."""
    whole = dict(EXPERIMENTS)
    EXPERIMENTS.clear()
    EXPERIMENTS.update({one.name: one for one in (gaussians(40), sleeping())})
    yield
    EXPERIMENTS.clear()
    EXPERIMENTS.update(whole)


def run(*arguments):
    return main(list(map(str, arguments)))


def table(path):
    """The table without what a clock says."""
    with path.open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["metric"] != "seconds"]


def test_the_list_names_every_experiment(capsys):
    assert run("--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(EXPERIMENTS)


def test_the_plan_says_how_long_it_takes_and_runs_nothing(toys, tmp_path, capsys):
    assert run("--all", "--plan", "--output", tmp_path / "run") == 0
    assert "toy-sleep" in (said := capsys.readouterr().out)
    assert "12 units, about     12 s of work" in said
    assert not (tmp_path / "run").exists()


def test_the_page_names_the_commit_it_is_told(toys, tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELMOSAIC_COMMIT", "")  # the option sets it, for what the run starts
    assert run("toy-sleep", "--output", tmp_path, "--jobs", 1, "--commit", "abc1234") == 0
    assert "Run of commit abc1234 on " in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_a_run_prints_its_tables_and_leaves_them_in_its_folder(toys, tmp_path, capsys):
    assert run("--all", "--quick", "--output", tmp_path / "run", "--jobs", 1) == 0
    output, errors = capsys.readouterr()
    assert "toy-gauss: Two mixtures" in output
    assert "A quick look" in output
    assert (
        len([line for line in errors.splitlines() if line]) == 2
    )  # no terminal: one line per experiment
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        *(
            "report.md",
            "run.json",
            "run.lock",
            "toy-gauss.csv",
            "toy-gauss.jsonl",
            "toy-sleep.csv",
            "toy-sleep.jsonl",
        ),
    }
    assert "toy-gauss" in (tmp_path / "run" / "report.md").read_text(encoding="utf-8")
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["environment"]["commit"] is None
    assert (facts["seed"], facts["scale"]["name"]) == (0, "quick")
    assert {"kernelmosaic", "python", "numpy", "scipy", "scikit-learn", "numba", "cpus"} <= facts[
        "environment"
    ].keys()
    rows = table(tmp_path / "run" / "toy-gauss.csv")
    assert {row["dataset"] for row in rows} == {"GAUSS4"}
    assert {row["count"] for row in rows} == {"2"}


def test_the_same_seed_gives_the_same_table_whoever_runs_it(toys, tmp_path):
    for name, *options in (("a", "--jobs", 1), ("b", "--jobs", 2), ("c", "--jobs", 1, "--seed", 1)):
        assert run("toy-gauss", "--quick", "--output", tmp_path / name, *options) == 0
    a, b, c = (table(tmp_path / name / "toy-gauss.csv") for name in "abc")
    assert a == b
    assert a != c


def test_failed_units_are_listed_and_end_in_exit_code_1(toys, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "toy-sleep", sleeping(failing=(1, 4)))
    assert run("toy-sleep", "--output", tmp_path / "run", "--jobs", 1) == 1
    output, errors = capsys.readouterr()
    assert "Tables:" in output
    last = errors.splitlines()[-1]
    assert "toy-sleep/toy/sleep/none/1 and 1 other failed" in last
    assert "fetch it from https://example.org" in last
    # Mended, the same command goes on.
    monkeypatch.setitem(EXPERIMENTS, "toy-sleep", sleeping())
    assert run("toy-sleep", "--output", tmp_path / "run", "--jobs", 1) == 0
    assert "10 of 12 units are there already" in capsys.readouterr().err


def test_a_missing_data_file_says_where_to_get_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KERNELMOSAIC_DATA", raising=False)
    # The network must not be asked; what cannot be had without it is then missing.
    banana = EXPERIMENTS["000-banana"]
    (data,) = banana.protocol.datasets
    offline = replace(
        data, source=replace(data.source, options=(*data.source.options, ("download", False)))
    )
    protocol = replace(banana.protocol, datasets=(offline,))
    monkeypatch.setitem(EXPERIMENTS, "000-banana", replace(banana, protocol=protocol))
    assert (
        run("000-banana", "--quick", "--output", tmp_path / "run", "--data", tmp_path, "--jobs", 1)
        == 1
    )
    last = capsys.readouterr().err.splitlines()[-1]
    assert "banana" in last
    assert "FileNotFoundError" in last
    assert "https://" in last
    assert "name that folder by --data FOLDER or the environment variable KERNELMOSAIC_DATA" in last
    assert "data_home" not in last


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--all"),
        (["--all", "toy-gauss"], "--all"),
        (["toy-gaus"], "did you mean 'toy-gauss'"),
        (["toy-gauss", "--data", "no/such/folder"], "--data no/such/folder"),
        (["toy-gauss", "--output", "file"], "--output file is not a folder"),
        (["toy-gauss", "--output", "/proc/run"], "--output /proc/run"),
        (["toy-gauss", "--jobs", "-1"], "--jobs"),
        (["toy-gauss", "--jobs", "many"], "--jobs: invalid whole number value: 'many'"),
        (["toy-gauss", "--seed", "-1"], "--seed"),
        (["toy-gauss", "--colour"], "--colour"),
        (["report"], "run"),
        (["report", "none"], "none is not there; give a folder that `python -m reproduction` made"),
        (["report", ".", "--data", "file"], "--data file: this is no folder"),
        (["report", "file"], "has no run.json"),
        (
            ["report", ".", "--output", "no/page.html"],
            "--output/-o: no/page.html is not the name of a file",
        ),
        (["report", ".", "--markdown", "no/page.md"], "no/page.md"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    toys, arguments, words, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert run(*arguments) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert len(errors.splitlines()) == 1
    assert words in errors
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_another_seed_in_the_same_folder_is_one_line_too(toys, tmp_path, capsys):
    assert run("toy-sleep", "--output", tmp_path, "--jobs", 1) == 0
    capsys.readouterr()
    assert run("toy-sleep", "--output", tmp_path, "--jobs", 1, "--seed", 3) == 2
    assert "holds a run with seed 0" in capsys.readouterr().err


def test_a_damaged_line_is_one_line_on_stderr(toys, tmp_path, capsys):
    assert run("toy-sleep", "--output", tmp_path, "--jobs", 1) == 0
    capsys.readouterr()
    path = tmp_path / "toy-sleep.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    assert run("toy-sleep", "--output", tmp_path, "--jobs", 1) == 0
    errors = capsys.readouterr().err
    assert "line 13 is torn" in errors
    assert "Warning" not in errors


INTERRUPTED = """
import signal
import sys
from reproduction import EXPERIMENTS
from reproduction.__main__ import main
from tests.reproduction.toy import sleeping
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs that a shell runs in the background ignore it
    EXPERIMENTS["toy-sleep"] = sleeping(seconds=0.3)
    sys.exit(main(["toy-sleep", "--output", sys.argv[1], "--jobs", sys.argv[2]]))
"""


@pytest.mark.skipif(os.name == "nt", reason="process groups")
def test_an_interrupt_says_how_to_go_on(tmp_path):
    (tmp_path / "script.py").write_text(INTERRUPTED)
    paths = os.pathsep.join([str(TOP / "src"), str(TOP), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "run"), "2"],
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    results = tmp_path / "run" / "toy-sleep.jsonl"
    while not (results.exists() and len(results.read_text().splitlines()) >= 3):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "The same command goes on from there." in errors
    assert "Traceback" not in errors
