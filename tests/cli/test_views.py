"""Which columns make a view: guessed from real headers, named in a file, and shown before the fit
begins."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from tests.cli.tables import PLAIN, done, flowers, run, write

from kernelmosaic import load
from kernelmosaic.cli.layout import guess_views, usual_kernels

HEADERS = {
    "sex and its label": ("sex,sex_label,age,age_group,bmi,bmi_class", {"all": 6}),
    "titanic": ("Pclass,Sex,Age,SibSp,Parch,Fare,Embarked", {"all": 7}),
    "adult": (
        "age,education,education_num,marital_status,capital_gain,capital_loss,hours_per_week",
        {"all": 7},
    ),
    "one group": ("gene_1,gene_2,gene_3,gene_4", {"all": 4}),
    "no pattern": ("blood_pressure,blood_sugar,heart_rate,age,weight", {"all": 5}),
    "sorts of numbers": ("is_new,is_sold,is_old,num_rooms,num_floors,num_baths,price", {"all": 7}),
    "iris": ("sepal_length,sepal_width,petal_length,petal_width", {"sepal": 2, "petal": 2}),
    "separators differ": ("sepal_length,sepal_width,petal.length,petal.width", {"all": 4}),
    "omics": (
        "rna_TP53,rna_MYC,rna_EGFR,meth_TP53,meth_MYC,meth_EGFR,age,sex",
        {"rna": 3, "meth": 3, "other": 2},
    ),
    "R": ("rna.a,rna.b,rna.c,protein.a,protein.b,protein.c", {"rna": 3, "protein": 3}),
    "a pair among groups": (
        "rna_a,rna_b,rna_c,img_1,img_2,img_3,visit_date,visit_id,age",
        {"rna": 3, "img": 3, "other": 3},
    ),
}


@pytest.mark.parametrize("header", HEADERS)
def test_columns_are_grouped_where_their_names_say_so(header):
    names, groups = HEADERS[header]
    found, _ = guess_views(
        dict.fromkeys(names.split(","), "numbers"), usual_kernels("classification", "bilinear")
    )
    assert {view.name: len(view.columns) for view in found} == groups


@pytest.fixture
def train(tmp_path):
    return write(flowers(), tmp_path / "train.csv")


def test_views_come_from_a_file_and_from_options(capsys, tmp_path, train):
    views = {"form": {"columns": ["shape_?"], "kernel": "gauss*2"}, "rest": ["noise_a", "colour"]}
    (tmp_path / "views.json").write_text(json.dumps(views))
    arguments = (
        "fit",
        train,
        "--target",
        "kind",
        "--views",
        tmp_path / "views.json",
        "--view",
        "b=noise_b:linear",
    )
    said = done(capsys, *arguments, *PLAIN, "-o", tmp_path / "m.skops")
    told = said.err.splitlines()
    assert told[0] == "kernelmosaic: view b: 1 column (noise_b); linear"
    assert (
        told[1] == "kernelmosaic: view form: 2 columns (shape_a, shape_b); gauss(0.707*median) +"
        " gauss(1.41*median)"
    )
    assert told[2].startswith(
        "kernelmosaic: view rest: 2 columns (noise_a, colour); linear + poly2"
    )
    kernels = load(tmp_path / "m.skops").named_steps["model"].kernel_names_
    assert kernels[:3] == ["b:linear", "form:gauss(0.707*median)", "form:gauss(1.41*median)"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "names no views"),
        ('{"s": 3}', "view 's': 3 cannot be read"),
        ('{"s": {"columns": ["shape_*"], "kernels": "gauss"}}', "cannot be read"),
        ('{"s": ["form_*"]}', "view 's': the pattern 'form_*' matches no column"),
        ('{"s": {"columns": "shape_*", "kernel": "cosine"}}', "view 's': unknown kernel 'cosine'"),
    ],
)
def test_files_of_views_that_cannot_be_read(capsys, tmp_path, train, content, words):
    (tmp_path / "v.json").write_text(content)
    line = run(
        capsys, "fit", train, "--target", "kind", "--views", tmp_path / "v.json", *PLAIN
    ).error
    assert f"--views {tmp_path / 'v.json'}" in line
    assert words in line


def test_joined_tables_may_be_divided_by_a_file(capsys, tmp_path, train):
    table = flowers().assign(id=[f"r{i}" for i in range(60)])
    write(table[["id", "kind"]], tmp_path / "t.csv")
    write(table.drop(columns="kind"), tmp_path / "all.csv")
    (tmp_path / "v.json").write_text('{"s": ["all.shape_*"], "n": ["all.noise_*"]}')
    joined = ("--on", "id", "--view", tmp_path / "all.csv", "--views", tmp_path / "v.json")
    done(
        capsys,
        "fit",
        tmp_path / "t.csv",
        "--target",
        "kind",
        *joined,
        *PLAIN,
        "-o",
        tmp_path / "m.skops",
    )
    views = load(tmp_path / "m.skops").training_["views"]
    assert list(views) == ["all", "s", "n"]
    assert views["all"]["columns"] == ["all.colour"]  # what the file gives to no other view


def test_a_refusal_comes_before_the_views(capsys, tmp_path, train):
    np.save(tmp_path / "K.npy", np.eye(60))
    kernel = ("--kernel", f"k={tmp_path / 'K.npy'}")
    run(capsys, "fit", train, "--target", "kind", *kernel, "--folds", "0").error  # noqa: B018 - one line, or it fails
    said = done(
        capsys, "fit", train, "--target", "kind", *kernel, *PLAIN, "-o", tmp_path / "m.skops"
    )
    assert "kernel matrices: k" in said.err


def test_twenty_views_are_described_and_the_others_are_counted(capsys, tmp_path):
    table = (
        pd.DataFrame(np.random.RandomState(0).randn(20, 23))
        .add_prefix("x")
        .assign(kind=["a", "b"] * 10)
    )
    views = [word for name in table.columns[:-1] for word in ("--view", f"v{name}={name}:linear")]
    path, model = write(table, tmp_path / "wide.csv"), tmp_path / "model.skops"
    said = done(capsys, "fit", path, "--target", "kind", "-o", model, *views, *PLAIN)
    assert "and 3 more views" in said.err
    assert "view vx19:" in said.err
    assert "view vx20:" not in said.err
