"""One kernel per group of columns, and files of gene sets."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from kernelmosaic import MKLClassifier, stack_views
from kernelmosaic.kernels import Gaussian, Linear, by_group, family, read_gmt

RNG = np.random.RandomState(0)
FRAME = pd.DataFrame(RNG.randn(40, 4), columns=["CD4", "CD8A", "MKI67", "TP53"])
GROUPS = {"immune": ["CD4", "CD8A", "FOXP3"], "cycle": ["MKI67", "TP53"], "absent": ["ABC1"]}


def test_every_group_is_a_kernel_of_its_columns():
    kernels = by_group({"cycle": ["MKI67", "TP53"], "first": [0, 1]}, Linear())
    assert [(name, type(kernel), columns) for name, kernel, columns in kernels] == [
        ("cycle", Linear, ["MKI67", "TP53"]),
        ("first", Linear, [0, 1]),
    ]
    assert kernels[0][1] is not kernels[1][1]
    assert isinstance(by_group({"all": [0]})[0][1], Gaussian)


def test_columns_that_are_not_there_are_left_out():
    kernels = by_group(GROUPS, among=FRAME.columns)
    assert {name: columns for name, _, columns in kernels} == {
        "immune": ["CD4", "CD8A"],
        "cycle": ["MKI67", "TP53"],
    }
    assert [name for name, *_ in by_group(GROUPS | {"one": ["TP53"]}, among=FRAME, min_size=2)] == [
        "immune",
        "cycle",
    ]
    model = MKLClassifier(kernels).fit(FRAME, FRAME["MKI67"] > 0)
    assert model.kernel_names_ == ["immune", "cycle"]
    assert model.weights_[1] > 0.6
    with pytest.raises(ValueError, match="FOXP3"):
        MKLClassifier(by_group(GROUPS)).fit(FRAME, FRAME["MKI67"] > 0)


def test_several_kernels_for_every_group():
    kernels = by_group({"a__b": [0], "c": [1]}, family(Gaussian(), factor=[1, 2]))
    assert [name for name, *_ in kernels] == [
        f"{group}, gaussian(factor={factor})" for group in ("a_b", "c") for factor in (1, 2)
    ]


def test_wrong_groups_are_named():
    with pytest.raises(TypeError, match="give a dict from the name of a group"):
        by_group([["a"]])
    with pytest.raises(TypeError, match="by_group needs a kernel"):
        by_group({"a": [0]}, "rbf")
    with pytest.raises(
        ValueError, match=r"there is no group with at least min_size=.*\['X', 'Y'\]"
    ):
        by_group(GROUPS, among=["X", "Y"][:2])
    with pytest.raises(ValueError, match="min_size=0"):
        by_group(GROUPS, min_size=0)
    with pytest.raises(TypeError, match=r"groups\['a'\]='CD4': with `among`, give a list"):
        by_group({"a": "CD4"}, among=FRAME.columns)


def test_gmt_files(tmp_path):
    path = tmp_path / "sets.gmt"
    path.write_text("IMMUNE\thttps://example.org/1\tCD4\tCD8A\tCD4\n\nCYCLE\t\tMKI67\t\n")
    assert read_gmt(path) == {"IMMUNE": ["CD4", "CD8A"], "CYCLE": ["MKI67"]}
    path.write_text("IMMUNE\tnothing\n")
    with pytest.raises(
        ValueError, match=r"sets.gmt, line 1: expected a name, a description and at least one gene"
    ):
        read_gmt(path)
    path.write_text("A\t\tX\nA\t\tY\n")
    with pytest.raises(ValueError, match="line 2: the group 'A' comes twice"):
        read_gmt(path)
    path.write_text("\n")
    with pytest.raises(ValueError, match="holds no group"):
        read_gmt(path)


TABLES = {"rna": FRAME, "clinic": pd.DataFrame(RNG.randn(40, 2), columns=["age", "CD4"])}
TARGET = (FRAME["MKI67"] > 0).to_numpy()


@pytest.mark.parametrize("prefix", ["", "rna__"], ids=["without prefix", "with prefix"])
@pytest.mark.parametrize(
    "samples", [TABLES, stack_views(TABLES), stack_views(TABLES).X], ids=["dict", "stacked", "X"]
)
def test_groups_of_several_tables(samples, prefix):
    groups = {"immune": ["CD8A", "TP53"], "cycle": ["MKI67"]}
    kernels = by_group(
        Gaussian(), {name: [prefix + one for one in own] for name, own in groups.items()}
    )
    model = MKLClassifier(kernels).fit(samples, TARGET)
    alone = MKLClassifier(by_group(groups)).fit(FRAME, TARGET)
    assert model.kernel_names_ == alone.kernel_names_ == ["immune", "cycle"]
    np.testing.assert_array_equal(model.decision_function(samples), alone.decision_function(FRAME))


def test_genes_that_were_measured_are_found_behind_the_prefix():
    X, views = stack_views(TABLES)
    (_, _, immune), _ = by_group(Linear(), GROUPS, among=views["rna"])
    assert immune == ["rna__CD4", "rna__CD8A"]
    # A kernel called like a table reads the columns that it names.
    model = MKLClassifier([("rna", Linear(), ["MKI67"]), ("clinic", Linear())]).fit(TABLES, TARGET)
    expected = MKLClassifier([("rna", Linear(), [2]), ("clinic", Linear(), [4, 5])]).fit(
        X.to_numpy(), TARGET
    )
    np.testing.assert_array_equal(
        model.decision_function(TABLES), expected.decision_function(X.to_numpy())
    )


def test_errors_name_the_prefix():
    twice = (
        r"'CD4' is a column of several tables, 'rna__CD4', 'clinic__CD4': write the one that is"
        r" meant"
    )
    with pytest.raises(ValueError, match=f"kernel 'immune': {twice}"):
        MKLClassifier(by_group({"immune": ["CD4"]})).fit(TABLES, TARGET)
    with pytest.raises(ValueError, match=twice):
        by_group(GROUPS, among=stack_views(TABLES).X.columns)
    with pytest.raises(
        ValueError,
        match=r"no \['FOXP3'\], but .*the prefix of a table, \['rna__', 'clinic__'\], may be",
    ):
        MKLClassifier(by_group({"immune": ["CD8A", "FOXP3"]})).fit(TABLES, TARGET)


def test_no_kernel_for_the_groups():
    with pytest.raises(ValueError, match=r"kernel=\[\]: give at least one kernel"):
        by_group({"a": [0]}, [])
