"""What is written is whole, what is announced is there, and what is no file stays what it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.cli.tables import PLAIN, done, flowers, run, write

from kernelmosaic import load

SHAPE = ("--target", "kind", "--view", "s=shape_*:linear")


@pytest.fixture
def here(tmp_path, monkeypatch, hide):
    monkeypatch.chdir(tmp_path)
    hide("matplotlib")  # pages are written alike without pictures
    write(flowers(), tmp_path / "train.csv")
    return tmp_path


def test_a_disk_full_at_the_model_announces_nothing(capsys, here, full_disk):
    full_disk(0)
    said = run(capsys, "fit", "train.csv", *SHAPE, *PLAIN, "-o", "m.skops", "--report", "r.html")
    assert (said.code, said.out) == (2, "")
    assert said.err.splitlines()[-1] == "kernelmosaic: m.skops: no space left on device."
    assert os.listdir() == ["train.csv"]


def test_a_disk_full_at_the_report_says_that_the_model_is_there(capsys, here, full_disk):
    full_disk(1)
    Path("r.html").write_text("former")
    said = run(capsys, "fit", "train.csv", *SHAPE, *PLAIN, "-o", "m.skops", "--report", "r.html")
    assert (said.code, said.out) == (2, "")
    last = said.err.splitlines()[-1]
    assert last == "kernelmosaic: r.html: no space left on device. The model is complete: m.skops."
    assert load("m.skops").named_steps["model"].kernel_names_ == ["s:linear"]
    assert Path("r.html").read_text() == "former"
    assert sorted(os.listdir()) == ["m.skops", "r.html", "train.csv"]


def test_a_disk_full_at_the_page_of_explain_says_that_the_table_is_there(capsys, here, full_disk):
    done(capsys, "fit", "train.csv", *SHAPE, *PLAIN, "-o", "m.skops")
    full_disk(1)
    said = run(capsys, "explain", "m.skops", "train.csv", "-o", "t.csv", "--report", "r.html")
    assert (said.code, said.out) == (2, "")
    assert said.err.splitlines()[-1].endswith(
        "r.html: no space left on device. The table is complete: t.csv."
    )
    assert len(Path("t.csv").read_text().splitlines()) == 61
    assert not Path("r.html").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
def test_an_output_that_is_no_regular_file_is_refused_before_any_work(capsys, here):
    os.mkfifo("pipe")
    os.mkfifo("pipe.csv")
    words = "is a device, a FIFO or the like and cannot be replaced"
    for option in ("-o", "--report"):
        line = run(capsys, "fit", "train.csv", *SHAPE, *PLAIN, option, "pipe").error
        assert line == f"kernelmosaic: {option}: pipe {words}; give the name of a file."
    done(capsys, "fit", "train.csv", *SHAPE, *PLAIN, "-o", "m.skops")
    assert words in run(capsys, "predict", "m.skops", "train.csv", "-o", "pipe.csv").error
    assert Path("pipe").is_fifo()
    assert Path("pipe.csv").is_fifo()


def test_outputs_are_written_through_links(capsys, here):
    Path("kept").mkdir()
    for name in ("m.skops", "r.html", "p.csv"):
        Path(name).symlink_to(Path("kept") / name)
    done(capsys, "fit", "train.csv", *SHAPE, *PLAIN, "-o", "m.skops", "--report", "r.html")
    done(capsys, "predict", "m.skops", "train.csv", "-o", "p.csv")
    assert all(Path(name).is_symlink() for name in ("m.skops", "r.html", "p.csv"))
    assert sorted(os.listdir("kept")) == ["m.skops", "p.csv", "r.html"]
