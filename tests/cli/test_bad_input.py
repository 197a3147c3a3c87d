"""What the caller can mend is one line on stderr and exit code 2, and nothing is written."""

from __future__ import annotations

import zipfile

import numpy as np
import pandas as pd
import pytest
import typer
from tests.cli.tables import PLAIN, curve, done, flowers, run, strings, write

from kernelmosaic.cli.commands import run as run_commands

SHAPE = ("--view", "s=shape_*:linear")


@pytest.fixture
def train(tmp_path):
    return write(flowers(), tmp_path / "train.csv")


def refusal(capsys, tmp_path, *arguments):
    """The line said when `fit` refuses; no model may be left behind."""
    said = run(capsys, "fit", *arguments, "-o", tmp_path / "refused.skops")
    assert not (tmp_path / "refused.skops").exists()
    return said.error


# Files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.csv", None, ["none.csv", "no such file"]),
        ("empty.csv", b"", ["empty.csv is empty"]),
        ("blank.csv", b"\n\n", ["blank.csv", "blank lines"]),
        (
            "comma.csv",
            b"a;kind\n1,5;x\n2,5;y\n0,25;x\n",
            ["row 1 (and 2 more), column 'a'", "'1,5' is not a number", "decimals"],
        ),
        ("misspelt.csv", b"a,Kind\n1,x\n2,y\n", ["no column 'kind'", "did you mean 'Kind'?"]),
        ("head.csv", b"a,kind\n", ["no rows"]),
        ("short.csv", b"a,b,kind\n1,2,x\n3,y\n", ["line 3", "2 cells", "first line has 3"]),
        ("long.csv", b"a,kind\n1,x\n2,y,z\n", ["line 3", "3 cells"]),
        ("quote.csv", b'a,kind\n1,"x\n2,y\n', ["quote.csv, line"]),
        ("twice.csv", b"a,a,kind\n1,2,x\n", ["'a' occurs 2 times"]),
        ("bytes.csv", b"\xff\xfe\x00\x01", ["not text in UTF-8"]),
        ("bytes2.csv", b"a,kind\n" + b"1,x\n" * 4000 + b"\xff,y\n", ["not text in UTF-8"]),
        ("table.xlsx", b"PK", [".csv", ".parquet"]),
        ("fake.parquet", b"not parquet at all", ["not a Parquet file"]),
        ("fake.npz", b"not an archive", ["not an archive of plain NumPy arrays"]),
        ("cut.npz", b"PK\x03\x04 and then nothing", ["not an archive of plain NumPy arrays"]),
    ],
)
def test_files_that_cannot_be_read(capsys, tmp_path, name, content, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    line = refusal(capsys, tmp_path, path, "--target", "kind")
    assert all(word in line for word in words), line


def test_a_folder_is_no_file(capsys, tmp_path):
    assert "is a folder" in refusal(capsys, tmp_path, tmp_path, "--target", "kind")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"X": np.ones((4, 2)), "y": np.ones(3)}, "y has 3 rows"),
        ({"X": np.ones((4, 2)), "feature_names": np.array(["a"])}, "feature_names"),
        ({"X": np.ones((4, 2)), "feature_names": np.array(["a", "a"])}, "'a' occurs 2 times"),
        ({"X": np.ones((4, 2)), "X_1": np.ones(4), "y": np.ones(4)}, "'X_1' occurs 2 times"),
        (
            {"X": np.ones((4, 2)), "feature_names": np.array(["a", "y"]), "y": np.ones(4)},
            "'y' occurs 2 times",
        ),
        ({"K": np.ones((2, 2, 2))}, "one row per sample"),
        ({"y": np.array([{}, {}])}, "plain NumPy arrays"),
    ],
    ids=["lengths", "names", "twice", "array as column", "feature as array", "cube", "pickled"],
)
def test_archives_that_do_not_fit_together(capsys, tmp_path, arrays, words):
    np.savez(tmp_path / "a.npz", **arrays)
    assert words in refusal(capsys, tmp_path, tmp_path / "a.npz", "--target", "y")


# Columns and cells --------------------------------------------------------------------------------


def test_columns_that_are_not_there(capsys, tmp_path, train):
    line = refusal(capsys, tmp_path, train, "--target", "species")
    assert "no column 'species'" in line
    assert "'shape_a'" in line
    line = refusal(capsys, tmp_path, train, "--target", "kind", "--view", "s=form_*:linear")
    assert "'form_*' matches no column" in line
    assert "matches no column" in refusal(
        capsys, tmp_path, train, "--target", "kind", "--drop", "x*"
    )


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("kind", None, ["row 6", "'kind' is empty"]),
        ("shape_b", None, ["row 6", "'shape_b' is empty"]),
        ("shape_b", "inf", ["row 6", "'shape_b' is infinite"]),
        ("shape_b", "wide", ["row 6", "'shape_b'", "'wide' is not a number"]),
        ("colour", None, ["row 6", "'colour' is empty"]),
    ],
)
def test_cells_that_cannot_be_used_are_named(capsys, tmp_path, column, value, words):
    table = flowers().astype({"shape_b": object})
    table.loc[5, column] = value
    path = write(table, tmp_path / "t.csv")
    line = refusal(capsys, tmp_path, path, "--target", "kind")
    assert all(word in line for word in words), line


def test_unused_columns_may_be_incomplete(capsys, tmp_path):
    table = flowers()
    table.loc[3, "noise_a"] = np.nan
    path = write(table, tmp_path / "t.csv")
    done(capsys, "fit", path, "--target", "kind", *SHAPE, *PLAIN, "-o", tmp_path / "m.skops")


def test_a_regression_target_must_be_numbers(capsys, tmp_path):
    table = curve().astype({"y": object})
    table.loc[2, "y"] = "much"
    path = write(table, tmp_path / "t.csv")
    assert "row 3, column 'y': 'much' is not a number" in refusal(
        capsys, tmp_path, path, "--target", "y", "--task", "regression"
    )
    path = write(curve().assign(y=1.5), tmp_path / "t.csv")
    assert "same value" in refusal(capsys, tmp_path, path, "--target", "y")


def test_classes(capsys, tmp_path):
    path = write(flowers().assign(kind="rose"), tmp_path / "t.csv")
    assert "one class only, rose" in refusal(capsys, tmp_path, path, "--target", "kind")
    table = flowers()
    table.loc[0, "kind"] = "orchid"
    line = refusal(
        capsys,
        tmp_path,
        write(table, tmp_path / "t.csv"),
        "--target",
        "kind",
        *SHAPE,
        "--method",
        "mkl",
    )
    assert "'orchid' has one row" in line
    assert "--folds 0" in line


def test_no_target_and_nothing_to_learn_from(capsys, tmp_path, train):
    assert "--target" in refusal(capsys, tmp_path, train)
    path = write(flowers()[["kind"]], tmp_path / "t.csv")
    assert "no column to learn from" in refusal(capsys, tmp_path, path, "--target", "kind")


# Views and options --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "words"),
    [
        ("s=shape_*:cosine", "unknown kernel 'cosine'"),
        ("s=shape_*:poly(x)", "cannot be read"),
        ("s=shape_*:poly(0)", "cannot be read"),
        ("s=shape_*:gauss(-1)", "cannot be read"),
        ("s=shape_*:gauss(-1*median)", "cannot be read"),
        ("s=shape_*:gauss(*median)", "cannot be read"),
        ("s=shape_*:gauss(2*mean)", "cannot be read"),
        ("s=shape_*:linear(2)", "cannot be read"),
        ("s=shape_*:linear*3", "only Gaussians and Laplacians come as a family"),
        ("s=shape_*:gauss*1", "gauss*2"),
        ("s=shape_*:linear+linear", "two kernels are called 's:linear'"),
        ("s=shape_*:linear+", "unknown kernel"),
        ("shape_*", "name=PATTERN:KERNEL"),
        ("a__b=shape_*:linear", "'__'"),
        ("s=shape_a:correlation", "at least two columns"),
        ("s=shape_a:wd(3)", "holds numbers"),
    ],
)
def test_views_that_cannot_be_read(capsys, tmp_path, train, view, words):
    assert words in refusal(capsys, tmp_path, train, "--target", "kind", "--view", view)


def test_strings_are_no_numbers(capsys, tmp_path):
    path = write(strings(), tmp_path / "t.csv")
    line = refusal(capsys, tmp_path, path, "--target", "motif", "--view", "d=dna:gauss")
    assert "column 'dna'" in line
    assert "not a number" in line
    assert "spectrum(3)" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--view", "a=shape_*:linear", "--view", "a=noise_*:linear"),
            "two kernels are called 'a:linear'",
        ),
        (("--cost", "genes=2"), "no kernel or view has this name"),
        (("--cost", "shape=-2"), "positive number"),
        (("--cost", "shape"), "name=FACTOR"),
        (
            ("--method", "discriminant", "--cost", "shape=2"),
            "--cost shape=2: the method must be mkl or rmkl",
        ),
        (("--method", "bilinear", "--task", "one-class"), "not one-class"),
        (("--method", "dance"), "dance"),
        (
            ("--method", "rmkl", *SHAPE),
            "--method rmkl: it learns penalties of several kernels, and there is one",
        ),
        (("--C", "0"), "--C"),
        (("--C", "-1"), "--C"),
        (("--C", "nan"), "--C"),
        (("--C", "1", "--C", "two"), "--C two: "),
        (("--folds", "1"), "--folds"),
        (("--folds", "0"), "--C"),
        (("--test", "1.5"), "--test"),
        (("--test", "0.01"), "--test"),
        (("--rows", "shape_a"), "--rows"),
        (("--report", "no/such/folder/r.html"), "folder"),
        (("--task", "ranking"), "--task"),
        (("--drop", "shape_*,noise_*,colour"), "no column to learn from"),
    ],
)
def test_options_that_cannot_be_met(capsys, tmp_path, train, arguments, words):
    assert words in refusal(capsys, tmp_path, train, "--target", "kind", *arguments)


def test_gates_need_numbers(capsys, tmp_path):
    path = write(strings(), tmp_path / "t.csv")
    assert "gates read numbers" in refusal(
        capsys, tmp_path, path, "--target", "motif", "--method", "localized", *PLAIN
    )


def test_outputs_that_cannot_be_written(capsys, tmp_path, train):
    assert "is a folder" in run(capsys, "fit", train, "--target", "kind", "-o", tmp_path).error
    assert (
        "does not exist"
        in run(capsys, "fit", train, "--target", "kind", "-o", tmp_path / "no" / "m.skops").error
    )


def test_a_missing_package_is_named_with_its_extra(capsys, tmp_path, train, hide):
    hide("skops", "skops.io")
    assert "kernelmosaic[persistence]" in refusal(capsys, tmp_path, train, "--target", "kind")
    assert "kernelmosaic[persistence]" in run(capsys, "inspect", "m.skops").error
    hide("typer")
    assert "kernelmosaic[cli]" in refusal(capsys, tmp_path, train, "--target", "kind")


# Matrices -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("K", "words"),
    [
        (np.ones((60, 59)), "square"),
        (np.eye(60) - 2 * np.ones((60, 60)) / 60 * 2, "positive semi-definite"),
        (np.triu(np.ones((60, 60))), "symmetric"),
        (np.full((60, 60), np.nan), "finite"),
        (np.eye(30), "--rows"),
        (np.ones(60), "is not a numeric matrix"),
        (np.array([["a", "b"], ["c", "d"]]), "is not a numeric matrix"),
    ],
    ids=["oblong", "indefinite", "lopsided", "missing", "small", "vector", "letters"],
)
def test_matrices_that_are_no_kernels(capsys, tmp_path, train, K, words):
    np.save(tmp_path / "K.npy", K)
    line = refusal(
        capsys, tmp_path, train, "--target", "kind", "--kernel", f"k={tmp_path / 'K.npy'}", *PLAIN
    )
    assert words in line
    assert "K.npy" in line


def test_matrices_in_text_and_archives(capsys, tmp_path, train):
    def line(path):
        return refusal(capsys, tmp_path, train, "--target", "kind", "--kernel", f"k={path}", *PLAIN)

    (tmp_path / "K.csv").write_text("1,0\n0,one\n")
    assert "matrix row 2, column 2: 'one' is not a number" in line(tmp_path / "K.csv")
    np.savez(tmp_path / "K.npz", a=np.eye(60), b=np.eye(60))
    assert "call the matrix k or K" in line(tmp_path / "K.npz")
    assert "no such file" in line(tmp_path / "none.npy")
    assert "a matrix is read from" in line(write(flowers(), tmp_path / "K.dat"))
    assert "name=FILE" in refusal(capsys, tmp_path, train, "--target", "kind", "--kernel", "K.npy")
    np.save(tmp_path / "K.npy", np.eye(60))
    both = [part for name in ("a", "a") for part in ("--kernel", f"{name}={tmp_path / 'K.npy'}")]
    assert "two kernels are called 'a'" in refusal(
        capsys, tmp_path, train, "--target", "kind", *both, *PLAIN
    )


# Model files --------------------------------------------------------------------------------------


@pytest.fixture
def model(capsys, tmp_path, train):
    done(capsys, "fit", train, "--target", "kind", *SHAPE, *PLAIN, "-o", tmp_path / "model.skops")
    return tmp_path / "model.skops"


@pytest.mark.parametrize("command", ["predict", "inspect"])
def test_files_that_are_no_models(capsys, tmp_path, train, model, command):
    def line(path):
        return run(capsys, command, path, *([train] if command == "predict" else [])).error

    assert "no such file" in line(tmp_path / "none.skops")
    assert "is a folder" in line(tmp_path)
    assert "not a model file" in line(train)
    with zipfile.ZipFile(tmp_path / "foreign.skops", "w") as archive:
        archive.writestr("schema.json", "{}")
    assert "not a model file of kernelmosaic" in line(tmp_path / "foreign.skops")
    with (
        zipfile.ZipFile(model) as archive,
        zipfile.ZipFile(tmp_path / "changed.skops", "w") as other,
    ):
        for name in archive.namelist():
            data = archive.read(name)
            other.writestr(
                name,
                data.replace(b"StandardScaler", b"RobustScaler") if name == "schema.json" else data,
            )
    assert "damaged or was changed" in line(tmp_path / "changed.skops")


def test_models_of_other_kinds(capsys, tmp_path, train):
    from sklearn.linear_model import LogisticRegression

    from kernelmosaic import MKLClassifier, save

    X, y = flowers()[["shape_a", "shape_b"]], flowers()["kind"].to_numpy(dtype=str)
    save(LogisticRegression().fit(X, y), tmp_path / "other.skops")
    assert (
        "not a fitted model of kernelmosaic"
        in run(capsys, "inspect", tmp_path / "other.skops").error
    )
    save(MKLClassifier().fit(X.to_numpy(), y), tmp_path / "nameless.skops")
    assert (
        "columns without names" in run(capsys, "predict", tmp_path / "nameless.skops", train).error
    )


# Prediction ---------------------------------------------------------------------------------------


def test_tables_that_do_not_suit_the_model(capsys, tmp_path, model):
    def line(table, *arguments):
        said = run(
            capsys,
            "predict",
            model,
            write(table, tmp_path / "new.csv"),
            "-o",
            tmp_path / "o.csv",
            *arguments,
        )
        assert not (tmp_path / "o.csv").exists()
        return said.error

    table = flowers()
    assert "no column 'shape_b'" in line(table.drop(columns="shape_b"))
    assert "no column 'name'" in line(table, "--id", "name")
    assert "has no kernel given as a matrix" in line(table, "--kernel", "k=K.npy")
    odd = table.astype({"shape_a": object})
    odd.loc[1, "shape_a"] = "wide"
    assert "row 2, column 'shape_a': 'wide' is not a number" in line(odd)
    odd.loc[1, "shape_a"] = None
    assert "row 2, column 'shape_a' is empty" in line(odd)
    table.loc[4, "kind"] = "orchid"
    assert "row 5, column 'kind': the class 'orchid'" in line(table)


def test_prediction_outputs(capsys, tmp_path, train, model):
    assert "is a folder" in run(capsys, "predict", model, train, "-o", tmp_path).error
    assert "must end in" in run(capsys, "predict", model, train, "-o", tmp_path / "o.json").error
    assert (
        "does not exist"
        in run(capsys, "predict", model, train, "-o", tmp_path / "no" / "o.csv").error
    )


def test_blocks_of_similarities_must_fit(capsys, tmp_path, train):
    np.save(tmp_path / "K.npy", np.eye(60))
    done(
        capsys,
        "fit",
        train,
        "--target",
        "kind",
        "--kernel",
        f"k={tmp_path / 'K.npy'}",
        *PLAIN,
        "-o",
        tmp_path / "m.skops",
    )

    def line(*arguments):
        return run(capsys, "predict", tmp_path / "m.skops", train, *arguments).error

    assert "--kernel k=FILE" in line()
    np.save(tmp_path / "B.npy", np.eye(60)[:, :50])
    assert "60 new rows by 60 training rows" in line("--kernel", f"k={tmp_path / 'B.npy'}")
    np.save(tmp_path / "B.npy", np.full((60, 60), np.inf))
    assert "is inf" in line("--kernel", f"k={tmp_path / 'B.npy'}")
    assert "are called k" in line("--kernel", f"z={tmp_path / 'K.npy'}")


# Beyond mistakes ----------------------------------------------------------------------------------


def test_delimiters_inside_quoted_names_do_not_count(capsys, tmp_path):
    path = tmp_path / "quoted.csv"
    rows = "".join(f"{i};{i * i};{'xy'[i % 2]}\n" for i in range(20))
    path.write_text(f'"mass, kg, dry";"height, cm";kind\n{rows}', encoding="utf-8")
    assert (
        "learned from"
        in done(capsys, "fit", path, "--target", "kind", *PLAIN, "-o", tmp_path / "m.skops").out
    )


def test_what_nobody_foresaw_is_one_line_and_exit_code_1(capsys, monkeypatch):
    commands = typer.Typer()

    @commands.command()
    def fail():
        raise KeyError("unforeseen")

    assert run_commands([], commands) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "kernelmosaic: KeyError: 'unforeseen'. This error was not foreseen: either a table holds"
        " what"
    )
    monkeypatch.setenv("KERNELMOSAIC_TRACEBACK", "1")
    with pytest.raises(KeyError):
        run_commands([], commands)


def test_a_table_without_a_column_to_learn_from(capsys, tmp_path):
    notes = pd.DataFrame(
        {"note": [f"Patient no. {i} was seen" for i in range(60)], "kind": ["x", "y"] * 30}
    )
    line = refusal(capsys, tmp_path, write(notes, tmp_path / "notes.csv"), "--target", "kind")
    assert "no column to learn from: every column but the target is left out" in line


def test_a_view_whose_file_has_no_column_to_learn_from(capsys, tmp_path):
    table = flowers().assign(id=range(60))
    path, other = (
        write(table, tmp_path / "train.csv"),
        write(table[["id", "kind"]], tmp_path / "other.csv"),
    )
    line = refusal(
        capsys, tmp_path, path, "--target", "kind", "--on", "id", *SHAPE, "--view", f"more={other}"
    )
    assert "has no column to learn from beside 'id' and the target" in line


@pytest.mark.parametrize("value", ["0", "-1", "inf", "nan"])
def test_a_price_that_cannot_be_is_answered_by_what_can(capsys, tmp_path, value):
    path = write(flowers(), tmp_path / "train.csv")
    assert f"--C: {value}: give a positive, finite number." in refusal(
        capsys, tmp_path, path, "--C", value
    )
