"""Mistakes of a first day: each is one line that names the option or column, the value, and what
would do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cli.tables import PLAIN, curve, done, flowers, run, strings, write


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in, as a user would."""
    monkeypatch.chdir(tmp_path)
    write(flowers(), tmp_path / "f.csv")
    write(curve(), tmp_path / "r.csv")
    (tmp_path / "dir").mkdir()
    return tmp_path


def python(*arguments):
    """Run another Python with the sources of this one, and return how it ended."""
    path = os.pathsep.join(
        [str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")]
    )
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )


def refusal(capsys, *arguments):
    """The line said on stderr; files are left as they were."""
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    line = run(capsys, *arguments).error
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before
    return line


FIT = ("fit", "f.csv", "--target", "kind")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nonsense",), ["'nonsense'", "`kernelmosaic --help`"]),
        (("fit", "--nonsense"), ["--nonsense", "`kernelmosaic fit --help`"]),
        (("fit",), ["train", "`kernelmosaic fit --help`"]),
        (("predict", "m.skops"), ["new", "`kernelmosaic predict --help`"]),
        (("fit", "f.csv", "g.csv"), ["g.csv", "`kernelmosaic fit --help`"]),
        ((*FIT, "--C", "-1"), ["--C", "-1", "positive"]),
        ((*FIT, "--C=abc"), ["--C abc", "number"]),
        ((*FIT, "--C", "1e400"), ["--C 1e400", "positive"]),
        ((*FIT, "--norm", "0.5"), ["--norm 0.5", "1"]),
        ((*FIT, "--norm", "inf"), ["--norm", "inf", "finite"]),
        ((*FIT, "--nu", "0"), ["--nu 0:", "0.001"]),
        ((*FIT, "--test", "1"), ["--test 1", "0.9"]),
        ((*FIT, "--folds", "100"), ["--folds 100", "50"]),
        ((*FIT, "--seed", "-1"), ["--seed -1", "0"]),
        ((*FIT, "--jobs", "x"), ["--jobs x", "integer"]),
        ((*FIT, "--method", "svm"), ["--method", "'svm'", "localized"]),
        (
            (*FIT, "--epsilon", "1"),
            ["--epsilon 1", "regression or survival", "leave the option out"],
        ),
        ((*FIT, "--task", "one-class", "--C", "2"), ["--C 2", "--nu"]),
        ((*FIT, "--method", "bilinear", "--norm", "2"), ["--norm 2", "bilinear", "mkl"]),
        ((*FIT, "-o", "dir"), ["-o", "dir is a folder", "name of a file"]),
        (
            (*FIT, "--output", "no/m.skops"),
            ["--output", "no/m.skops is in a folder that does not exist"],
        ),
        (
            (*FIT, "--output", "f.csv"),
            ["--output", "f.csv is not the name of a model file", "f.skops"],
        ),
        ((*FIT, "-o", "same", "--report", "same"), ["--report same", "another name"]),
        (("fit", "f.csv"), ["--target", "kind", "one-class"]),
        (("fit", "f.csv", "--target", "Kind"), ["'Kind'", "did you mean 'kind'?"]),
        (("inspect", "none.skops"), ["none.skops", "no such file"]),
        (("inspect", "f.csv"), ["f.csv is not a model file", "`kernelmosaic fit`"]),
        (("predict", "f.csv", "r.csv"), ["f.csv is not a model file", "`kernelmosaic fit`"]),
        (("predict", "none.skops", "f.csv"), ["none.skops", "no such file"]),
        (("predict", "f.csv", "f.csv", "-o", "x.json"), ["-o", "x.json", ".parquet"]),
        (("demo", "--samples", "3"), ["--samples 3", "20"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_options_and_arguments(capsys, folder, arguments, words):
    line = refusal(capsys, *arguments)
    assert all(word.lower() in line.lower() for word in words), line


@pytest.mark.parametrize(
    ("option", "path"),
    [("--output", "/proc/x.skops"), ("--report", "/proc/x.html"), ("-o", "/proc/self/x.skops")],
)
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder where nobody can write")
def test_outputs_that_permissions_do_not_betray_are_tried_first(capsys, folder, option, path):
    line = refusal(capsys, *FIT, option, path)
    assert f"{path} cannot be written; give another path" in line
    assert "Errno" not in line


# Classes and targets ------------------------------------------------------------------------------


def test_one_row_of_a_class_cannot_be_on_both_sides(capsys, folder):
    table = flowers()
    table.loc[0, "kind"] = "orchid"
    write(table, Path("one.csv"))
    line = refusal(capsys, "fit", "one.csv", "--target", "kind", "--test", "0.2")
    assert "--test 0.2: class 'orchid' of column 'kind' has one row" in line
    assert "leave the row out" in line
    table.loc[1, "kind"] = "orchid"
    write(table, Path("two.csv"))
    line = refusal(capsys, "fit", "two.csv", "--target", "kind", "--method", "mkl", "--test", "0.5")
    assert "'orchid' has one row to learn from" in line
    assert "--folds 0" in line


@pytest.mark.parametrize(
    ("share", "words"),
    [
        ("0.01", "holds out 1 of 60 rows, but at least one of each of the 3 classes"),
        ("0.9", None),
    ],
)
def test_shares_too_small_for_all_classes(capsys, folder, share, words):
    kinds = np.array(["rose", "tulip", "orchid"])[np.arange(60) % 3]
    write(flowers().assign(kind=kinds), Path("three.csv"))
    arguments = (
        "fit",
        "three.csv",
        "--target",
        "kind",
        "--test",
        share,
        "--folds",
        "0",
        "--C",
        "1",
    )
    if words is None:
        done(capsys, *arguments, "-o", "m.skops")
        return
    line = refusal(capsys, *arguments)
    assert words in line
    low, high = line.split("give ")[1].rstrip(".").split(" to ")
    for one in (low, high):  # what the line advises works
        done(capsys, *arguments[:-6], "--test", one, "--folds", "0", "--C", "1", "-o", "m.skops")


def test_shares_that_leave_nothing(capsys, folder):
    Path("small.csv").write_text("a,y\n1,1.5\n2,2.5\n3,9.1\n")
    line = refusal(capsys, "fit", "small.csv", "--target", "y", "--test", "0.9")
    assert line.endswith(
        "--test 0.9 leaves, to learn from, 0 of 3 rows, but at least two must be there; give 0, for"
        " none."
    )
    many = flowers().assign(kind=[f"c{i // 2}" for i in range(60)])
    write(many, Path("many.csv"))
    line = refusal(capsys, "fit", "many.csv", "--target", "kind", "--test", "0.2")
    assert (
        "holds out 12 of 60 rows, but at least one of each of the 30 classes must be there; give 0"
        in line
    )


def test_texts_for_a_regression(capsys, folder):
    line = refusal(capsys, *FIT, "--task", "regression")
    assert "row 1 (and 59 more), column 'kind': 'tulip' is not a number" in line
    assert "--task classification" in line
    table = curve().astype({"y": object})
    table.loc[6, "y"] = "much"
    write(table, Path("typo.csv"))
    line = refusal(
        capsys, "fit", "typo.csv", "--target", "y"
    )  # a quantity with a mistake, no set of classes
    assert "row 7, column 'y': 'much' is not a number" in line
    done(capsys, "fit", "r.csv", "--target", "y", *PLAIN, "-o", "m.skops")
    line = refusal(capsys, "predict", "m.skops", "typo.csv")
    assert "'much' is not a number; correct it, or leave the column out" in line


def test_targets_that_are_no_classes(capsys, folder):
    write(strings(), Path("s.csv"))
    line = refusal(capsys, "fit", "s.csv", "--target", "dna")
    assert "40 of 40 classes have one row" in line
    assert "--target" in line
    assert "--task regression" in refusal(
        capsys, "fit", "r.csv", "--target", "y", "--task", "classification"
    )


# Cells and files ----------------------------------------------------------------------------------


def test_numbers_too_large_to_square(capsys, folder):
    write(flowers().assign(big=np.where(np.arange(60) == 3, -1e300, 1.0)), Path("big.csv"))
    line = refusal(capsys, "fit", "big.csv", "--target", "kind")
    assert "row 4, column 'big': -1e+300 is too large" in line
    assert "unit" in line


def test_a_table_without_names(capsys, folder):
    Path("bare.csv").write_text("1,2,x\n3,4,y\n")
    assert "the first line is read as the names" in refusal(
        capsys, "fit", "bare.csv", "--target", "kind"
    )


def test_files_of_kernels_are_named_with_their_option(capsys, folder):
    Path("junk.npy").write_bytes(b"junk")
    for path, words in (
        ("none.npy", "no such file"),
        ("dir", "is a folder"),
        ("junk.npy", "numpy.save"),
    ):
        line = refusal(capsys, *FIT, "--kernel", f"k={path}")
        assert f"--kernel k={path}" in line
        assert words in line
    assert "pickle" not in line  # whoever cannot read a file should not be told to run it


def test_row_numbers_outside_the_matrices(capsys, folder):
    np.save("K.npy", np.eye(60))
    line = refusal(capsys, *FIT, "--kernel", "k=K.npy", "--rows", "shape_a")
    assert "row 1, column 'shape_a'" in line
    assert "from 0 to 59; --rows" in line
    table = flowers().assign(sample=range(60))
    write(table, Path("n.csv"))
    done(
        capsys,
        "fit",
        "n.csv",
        "--target",
        "kind",
        "--kernel",
        "k=K.npy",
        "--rows",
        "sample",
        *PLAIN,
        "-o",
        "m.skops",
    )
    write(table.assign(sample=range(7, 67)), Path("n.csv"))
    line = refusal(capsys, "predict", "m.skops", "n.csv")
    assert "row 54, column 'sample': 60 is not a row" in line


def test_strings_of_two_lengths(capsys, folder):
    table = strings()
    table.loc[4, "dna"] += "A"
    write(table, Path("s.csv"))
    line = refusal(capsys, "fit", "s.csv", "--target", "motif", "--view", "d=dna:spectrum(2)+wd(3)")
    assert "row 5, column 'dna': 21 letters, but row 1 has 20, and wd(3) of --view d" in line
    assert "spectrum(3)" in line


def test_inputs_are_not_overwritten(capsys, folder):
    np.save("K.npy", np.eye(60))
    done(capsys, *FIT, *PLAIN, "-o", "m.skops")
    Path("table").symlink_to("f.csv")
    for arguments, option in (
        ((*FIT, "--report", "f.csv"), "--report f.csv"),
        ((*FIT, "-o", "table"), "--output table"),
        ((*FIT, "--kernel", "k=K.npy", "--report", "K.npy"), "--report K.npy"),
        (("predict", "m.skops", "f.csv", "-o", "f.csv"), "--output f.csv"),
    ):
        line = refusal(capsys, *arguments)
        assert f"{option}: this file is read, and would be overwritten" in line


# Waiting ------------------------------------------------------------------------------------------


def test_nothing_slow_is_loaded_before_there_is_work(folder):
    commands = (
        ["--help"],
        ["fit", "--help"],
        ["fit", "none.csv"],
        ["inspect", "none"],
        ["predict", "a", "b"],
    )
    code = f"""
import sys
from kernelmosaic.cli import main
for arguments in {commands!r}:
    main(arguments)
    slow = [name for name in ("numpy", "scipy", "sklearn", "pandas", "skops", "numba") if name in sys.modules]
    print("loaded by", *arguments, slow)
"""
    made = python("-c", code)
    assert made.returncode == 0
    loaded = [line for line in made.stdout.splitlines() if line.startswith("loaded by")]
    assert loaded == [f"loaded by {' '.join(arguments)} []" for arguments in commands]


def test_the_name_of_the_command_comes_from_the_shell(folder):
    ended = python("-m", "kernelmosaic", "demo", "--samples", "3")
    assert ended.returncode == 2
    assert "--samples 3:" in ended.stderr
