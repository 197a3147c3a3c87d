"""AnnData in and back: beside the same columns as arrays, and h5ad files where anndata is
installed."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.model_selection import GroupKFold, cross_val_score

from kernelmosaic import (
    MKLClassifier,
    MKLClassifierCV,
    MKLRegressor,
    MKLRidgeClassifierCV,
    stack_views,
)
from kernelmosaic.estimators import LocalizedMKLClassifier
from kernelmosaic.inspection import feature_importance, kernel_importance, stability
from kernelmosaic.kernels import Gaussian, Linear
from kernelmosaic.model_selection import PathSearchCV
from kernelmosaic.single_cell import Modality, to_anndata, views_from_anndata
from kernelmosaic.stacking import SparseTable

N, GENES = 48, [f"G{j}" for j in range(12)]
CELLS = pd.Index([f"cell{i}" for i in range(N)])
rng = np.random.default_rng(0)
COUNTS = rng.poisson(0.8, size=(N, 12)).astype(np.float32)
TYPES = np.array(["B", "CD4+/CD25 T", "NK"])[np.arange(N) % 3]
COUNTS[:, :3] += 3 * (np.arange(N) % 3 == 1)[:, None]
COUNTS[:, 4:6] += 2 * (np.arange(N) % 3 == 2)[:, None]
SETS = {
    "one": ["G0", "G1", "G2", "absent"],
    "two": ["G5", "G4", "G6"],
    "far": ["G8", "G10", "G11"],
    "few": ["G3"],
}
COLUMNS = {"one": [0, 1, 2], "two": [5, 4, 6], "far": [8, 10, 11]}
USED = [0, 1, 2, 4, 5, 6, 8, 10, 11]


class InFile:
    """A matrix that gives its rows in blocks, and counts them."""

    def __init__(self, values):
        self.values, self.shape, self.blocks = values, values.shape, []

    def __getitem__(self, rows):
        assert isinstance(rows, slice)
        self.blocks.append(rows)
        return self.values[rows]


def annotated(X=None, cells=CELLS, genes=GENES, **more):
    """What is read of an AnnData, and written to it."""
    X = sparse.csr_matrix(COUNTS) if X is None else X
    obs = pd.DataFrame({"type": TYPES[: len(cells)]}, index=cells)
    given = {"layers": {}, "raw": None, "obsm": {}, "uns": {}} | more
    return SimpleNamespace(
        X=X, obs=obs, obs_names=obs.index, var_names=pd.Index(genes), shape=X.shape, **given
    )


def modalities(**mod):
    cells = next(iter(mod.values())).obs_names
    for one in mod.values():
        cells = cells.append(one.obs_names[~one.obs_names.isin(cells)])
    return SimpleNamespace(mod=mod, obs=pd.DataFrame(index=cells), obs_names=cells, obsm={}, uns={})


@pytest.mark.parametrize(
    "form", [sparse.csr_matrix, sparse.csc_matrix, sparse.csr_array, np.asarray]
)
def test_columns_and_kernels(form):
    X, kernels = views_from_anndata(annotated(form(COUNTS)), SETS, kernel=Linear(), min_size=3)
    assert [(name, columns) for name, _, columns in kernels] == [
        ("one", ["G0", "G1", "G2"]),
        ("two", ["G5", "G4", "G6"]),
        ("far", ["G8", "G10", "G11"]),
    ]
    assert all(isinstance(kernel, Linear) for _, kernel, _ in kernels)
    assert list(X.columns) == [GENES[j] for j in USED]
    assert X.index.equals(CELLS)
    assert isinstance(X, pd.DataFrame if form is np.asarray else SparseTable)
    values = X.to_numpy() if form is np.asarray else X.toarray()
    np.testing.assert_array_equal(values, COUNTS[:, USED])


def test_a_fit_is_that_of_an_array_with_column_numbers():
    adata = annotated()
    X, kernels = views_from_anndata(adata, SETS, min_size=3)
    model = MKLClassifier(kernels).fit(X, adata.obs["type"])
    same = MKLClassifier([(name, Gaussian(), own) for name, own in COLUMNS.items()]).fit(
        COUNTS, TYPES
    )
    np.testing.assert_allclose(model.weights_, same.weights_, atol=2e-3)
    np.testing.assert_allclose(
        model.decision_function(X), same.decision_function(COUNTS), atol=5e-3
    )
    assert model.kernel_names_ == list(COLUMNS)
    assert model.feature_names_in_.tolist() == X.columns.tolist()
    genes = feature_importance(model, X, random_state=0)
    assert {name for name, _ in genes.top("two")} == {"G4", "G5", "G6"}


def test_scaling_is_implicit():
    # Gaussian kernels do not read the centre, and centred linear ones do not either: sparse columns
    # stay sparse.
    kernels = [("g", Gaussian(), GENES[:6]), ("l", Linear(), GENES[6:])]
    frame = pd.DataFrame(COUNTS, columns=GENES)
    options = {"Cs": [1.0], "norms": 1, "cv": 2, "normalize": "centered", "tol": 1e-6}
    dense = MKLClassifierCV(kernels, **options).fit(frame, TYPES)
    thin = MKLClassifierCV(kernels, **options).fit(SparseTable(COUNTS, columns=GENES), TYPES)
    np.testing.assert_allclose(thin.weights_, dense.weights_, atol=1e-4)
    table = SparseTable(COUNTS, columns=GENES)
    np.testing.assert_allclose(
        thin.decision_function(table), dense.decision_function(frame), atol=1e-4
    )


def test_rows_of_a_table_keep_their_names():
    table = SparseTable(COUNTS, columns=GENES, index=CELLS)
    some = table[[3, 1], :][:, [5, 0]]
    assert some.columns.tolist() == ["G5", "G0"]
    assert some.index.tolist() == ["cell3", "cell1"]
    np.testing.assert_array_equal(some.toarray(), COUNTS[[3, 1]][:, [5, 0]])
    assert table[np.arange(N) > 40, ...].index.tolist() == list(CELLS[41:])
    assert table[:, table.columns == "G1"].columns.tolist() == ["G1"]
    assert not hasattr(table * 2, "columns")
    with pytest.raises(ValueError, match=r"y: its 48 rows have the names of X in another order"):
        MKLClassifier([("a", Linear(), ["G1"])]).fit(table, pd.Series(TYPES, index=CELLS[::-1]))
    with pytest.raises(ValueError, match=r"it has no \['XY'\], but \['G0'"):
        MKLClassifier([("a", Linear(), ["XY"])]).fit(table, TYPES)
    stacked = stack_views(a=table, b=COUNTS)
    assert stacked.X.shape == (N, 24)
    assert len(MKLClassifier().fit(table, TYPES).kernel_names_) == 5


def test_cross_validation_takes_rows_by_donor():
    adata = annotated()
    X, kernels = views_from_anndata(adata, SETS, min_size=3)
    donors = np.arange(N) // 12
    model = MKLClassifierCV(kernels, Cs=[0.1, 1.0], norms=1, cv=GroupKFold(4)).fit(
        X, adata.obs["type"], groups=donors
    )
    assert model.scores_.shape == (4, 2)
    dense = pd.DataFrame(X.toarray(), index=X.index, columns=X.columns)
    same = MKLClassifierCV(kernels, Cs=[0.1, 1.0], norms=1, cv=GroupKFold(4)).fit(
        dense, TYPES, groups=donors
    )
    np.testing.assert_allclose(model.scores_, same.scores_)
    outer = cross_val_score(
        MKLClassifier(kernels), X, adata.obs["type"], groups=donors, cv=GroupKFold(4)
    )
    assert outer.shape == (4,)
    assert PathSearchCV(MKLClassifier(kernels), Cs=[1.0], cv=2).fit(X, TYPES).predict(X).shape == (
        N,
    )


def test_layers_raw_and_gmt(tmp_path):
    path = tmp_path / "sets.gmt"
    path.write_text("".join(f"{name}\t\t{chr(9).join(genes)}\n" for name, genes in SETS.items()))
    raw = SimpleNamespace(X=sparse.csr_matrix(3 * COUNTS), var_names=pd.Index(GENES))
    adata = annotated(layers={"double": 2 * COUNTS}, raw=raw)
    for more, factor in (({}, 1), ({"layer": "double"}, 2), ({"use_raw": True}, 3)):
        X, kernels = views_from_anndata(adata, path, min_size=3, **more)
        assert [name for name, _, _ in kernels] == list(COLUMNS)
        np.testing.assert_array_equal(
            X.toarray() if factor != 2 else X.to_numpy(), factor * COUNTS[:, USED]
        )


@pytest.mark.parametrize("form", [sparse.csr_matrix, np.asarray])
def test_a_file_is_read_in_blocks(form):
    held = InFile(form(COUNTS.astype(np.int64)))
    X, _ = views_from_anndata(annotated(held), SETS, min_size=3)
    np.testing.assert_array_equal(
        X.to_numpy() if form is np.asarray else X.toarray(), COUNTS[:, USED]
    )
    part = replace(Modality.of("", "", annotated(held), None, use_raw=False), block=12 * 20)
    held.blocks.clear()
    values = part.read(np.array(USED))
    assert [rows.stop - rows.start for rows in held.blocks] == [20, 20, 8]
    assert values.dtype == np.float32
    np.testing.assert_array_equal(
        values if form is np.asarray else values.toarray(), COUNTS[:, USED]
    )


def test_new_cells_have_the_genes_of_the_fit():
    X, kernels = views_from_anndata(annotated(), SETS, min_size=3)
    model = MKLClassifier(kernels).fit(X, TYPES)
    other = annotated(sparse.csr_matrix(COUNTS[:5, ::-1]), CELLS[:5], GENES[::-1])
    new, _ = views_from_anndata(other, SETS, min_size=3)
    with pytest.raises(
        ValueError, match=r"column 0 is 'G11', but 'G0' in the training set.*genes=model"
    ):
        model.predict(new)
    new, _ = views_from_anndata(other, SETS, min_size=3, genes=model.feature_names_in_)
    np.testing.assert_allclose(model.decision_function(new), model.decision_function(X[:5]))
    with pytest.raises(ValueError, match=r"genes: \['G0'\] of 9 are not among those of data"):
        views_from_anndata(
            annotated(COUNTS[:, 1:], genes=GENES[1:]),
            SETS,
            genes=model.feature_names_in_,
            min_size=2,
        )


def test_modalities_side_by_side():
    order = rng.permutation(N)
    atac = annotated(
        sparse.csr_matrix(COUNTS[order, :4]), CELLS[order], [f"P{j}" for j in range(4)]
    )
    both = modalities(rna=annotated(), atac=atac)
    sets = {"rna": SETS, "atac": {"open": ["P0", "P3"]}}
    X, kernels = views_from_anndata(both, sets, min_size=2)
    assert [name for name, _, _ in kernels] == ["rna: one", "rna: two", "rna: far", "atac: open"]
    assert kernels[-1][2] == ["atac__P0", "atac__P3"]
    np.testing.assert_array_equal(X.toarray(), np.hstack([COUNTS[:, USED], COUNTS[:, [0, 3]]]))
    model = MKLClassifier(kernels).fit(X, TYPES == "B")
    assert set(model.view_weights_) == {"rna", "atac"}
    alone, own = views_from_anndata(both, SETS, modality="rna", min_size=3)
    assert list(alone.columns) == [GENES[j] for j in USED]
    assert own[0][0] == "one"
    assert views_from_anndata(both, sets, modality="atac", min_size=2)[1][0][::2] == (
        "open",
        ["P0", "P3"],
    )
    to_anndata(model, both)
    assert both.obs["mkl"].tolist() == model.predict(X).tolist()


def partly(columns=4):
    """Cells of which ten lack the second modality, in another order there; the sets, and the same
    as a data frame."""
    order = 10 + rng.permutation(N - 10)
    peaks = [f"P{j}" for j in range(columns)]
    # Whole numbers would make neighbours that are equally near.
    genes, values = (
        np.tile(COUNTS, -(-k // 12))[:, :k] * (1 + rng.random((N, k))) for k in (12, columns)
    )
    both = modalities(
        rna=annotated(sparse.csr_matrix(genes)),
        atac=annotated(sparse.csr_matrix(values[order]), CELLS[order], peaks),
    )
    sets = {"rna": SETS, "atac": {"open": ["P0", *peaks[3:]], "other": ["P2", "P1"]}}
    X, kernels = views_from_anndata(both, sets, min_size=2)
    dense = pd.DataFrame(np.hstack([genes[:, USED], values]), index=CELLS, columns=X.columns)
    dense.iloc[:10, 9:] = np.nan
    return both, X, kernels, dense


@pytest.mark.parametrize(
    "make",
    [
        lambda kernels: MKLClassifier(kernels, tol=1e-6),
        lambda kernels: MKLClassifier(kernels, missing="zero", normalize="diagonal", tol=1e-6),
        lambda kernels: MKLClassifierCV(kernels, Cs=[1.0], norms=1, cv=2, tol=1e-6),
        MKLRidgeClassifierCV,
    ],
)
def test_cells_that_lack_a_modality_are_missing_views(make):
    _, X, kernels, dense = partly()
    assert isinstance(X, SparseTable)
    # Of a modality that a cell lacks there is one entry.
    assert X.nnz == np.count_nonzero(np.nan_to_num(dense)) + 10
    model, same = make(kernels).fit(X, TYPES), make(kernels).fit(dense, TYPES)
    np.testing.assert_allclose(model.weights_, same.weights_, atol=1e-4)
    # Constants of classes of ridge machines are calibrated on folds, which are dealt by the entries
    # of both forms.
    constants = 0.0, 0.0
    if type(model) is MKLRidgeClassifierCV:
        constants = model.intercept_, same.intercept_
    outputs = (
        model.decision_function(X) - constants[0],
        same.decision_function(dense) - constants[1],
    )
    np.testing.assert_allclose(*outputs, atol=1e-3)
    if type(model) is MKLClassifier:
        complete = (
            make(kernels).fit(one[10:], TYPES[10:]).decision_function(one[:10])
            for one in (X, dense)
        )
        np.testing.assert_allclose(*complete, atol=1e-3)
    # Rows, and rows that all lack it.
    for rows in ([12, 3, 40], np.arange(6)):
        np.testing.assert_allclose(
            model.contributions(X[rows]),
            same.contributions(dense.iloc[rows]),
            atol=1e-3,
            err_msg=str(rows),
        )
    many, few = (
        feature_importance(one, at, random_state=0) for one, at in ((model, X), (same, dense))
    )
    np.testing.assert_allclose(many.importances, few.importances, atol=1e-3)


def test_wide_views_of_cells_that_lack_them_stay_sparse():
    _, X, kernels, dense = partly(columns=620)
    kernels = [(name, Gaussian() if "rna" in name else Linear(), own) for name, _, own in kernels]
    model, same = (MKLClassifier(kernels, tol=1e-6).fit(one, TYPES) for one in (X, dense))
    np.testing.assert_allclose(model.decision_function(X), same.decision_function(dense), atol=1e-3)
    views = model.function_.expansion.sums.missing.views.distinct
    assert sorted(sparse.issparse(view) for view in views) == [False, False, False, False, True]
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(back.decision_function(X[:20]), model.decision_function(X[:20]))


def test_views_of_different_cells_are_joined_sparse():
    both = partly()[0]
    for one in both.mod.values():
        one.to_df = partial(
            pd.DataFrame, one.X.toarray(), index=one.obs_names, columns=one.var_names
        )
    stacked, y = stack_views(both, pd.Series(TYPES, index=CELLS)[::-1])
    assert isinstance(stacked.X, SparseTable)
    assert stacked.X.lacking.keys() == {"atac"}
    assert stacked.X.lacking["atac"].tolist() == [True] * 10 + [False] * 38
    assert y.tolist() == TYPES.tolist()
    frames = stack_views({name: one.to_df() for name, one in both.mod.items()})
    kernels = [(name, Gaussian(), columns) for name, columns in stacked.views.items()]
    model, same = (
        MKLClassifier(kernels, tol=1e-6).fit(one, TYPES) for one in (stacked.X, frames.X)
    )
    np.testing.assert_allclose(
        model.decision_function(stacked.X), same.decision_function(frames.X), atol=1e-3
    )
    # A table that is not given is missing in every row.
    whole = MKLClassifier(tol=1e-6).fit(stacked, TYPES)
    assert np.isfinite(whole.decision_function({"rna": both.mod["rna"]})).all()
    # Beside a data frame the result is one, and a part of the columns still says what rows lack.
    mixed = stack_views(
        {"atac": SparseTable(stacked.X[10:, 12:], index=CELLS[10:]), "rna": both.mod["rna"].to_df()}
    )
    assert mixed.X.filter(like="atac").isna().all(axis=1).sum() == 10
    assert stacked.X[5:, [3, 15, 14]].lacking["atac"].tolist() == [True] * 5 + [False] * 38
    assert np.isnan(stacked.X[5:, [3, 15, 14]].toarray()).sum() == 5


def test_what_cells_that_lack_a_modality_cannot_have():
    _, X, kernels, _ = partly()
    with pytest.raises(ValueError, match=r"approximation='nystroem': X contains NaN"):
        MKLClassifier(kernels, approximation="nystroem").fit(X, TYPES)
    across = MKLClassifier([("a", Linear(), ["rna__G1", "atac__P1"]), *kernels])
    for call in (lambda: across.fit(X, TYPES), lambda: across.fit(X[10:], TYPES[10:]).predict(X)):
        with pytest.raises(
            ValueError,
            match=r"kernel 'a' reads columns of several tables, .* lack 'atac': give each",
        ):
            call()
    with pytest.raises(ValueError, match="NaN"):
        LocalizedMKLClassifier(kernels).fit(X, TYPES)
    with pytest.raises(ValueError, match=r"NaN"):
        MKLClassifier([("a", Linear(), [0, 1])]).fit(sparse.csr_array(X), TYPES)


WRONG = {
    "a layer that is not there": (
        {},
        {"layer": "scaled"},
        r"layer='scaled': there is no such layer; .* none\.",
    ),
    "no raw": ({}, {"use_raw": True}, r"use_raw=True: data\.raw is None\."),
    "both": (
        {},
        {"use_raw": True, "layer": "a"},
        r"use_raw=True: layer='a' is not of raw; give one of both\.",
    ),
    "names twice": (
        {"genes": ["G0", *GENES[:-1]]},
        {},
        r"'G0' comes more than once; call data\.var_names_make_unique",
    ),
    "other names": (
        {"genes": [f"ENSG{j}" for j in range(12)]},
        {},
        r"no gene of any set.*'ENSG0'.*'G0'; give both",
    ),
    "small sets": ({}, {"min_size": 9}, r"at least min_size=9"),
    "no modalities": ({}, {"modality": "rna"}, r"modality='rna': an AnnData has no modalities"),
    "NaN": (
        {"X": np.where(np.arange(12) == 4, np.nan, COUNTS)},
        {},
        r"data: cell 'cell0', gene 'G4' is NaN or inf",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_in_one_sentence(case):
    given, options, words = WRONG[case]
    with pytest.raises(ValueError, match=words) as caught:
        views_from_anndata(annotated(**given), SETS, **{"min_size": 3, **options})
    assert "\n" not in str(caught.value)


def test_errors_of_modalities_and_types():
    both = modalities(rna=annotated(), atac=annotated())
    with pytest.raises(ValueError, match=r"modality='dna': .* they are rna, atac"):
        views_from_anndata(both, SETS, modality="dna")
    with pytest.raises(ValueError, match=r"none for the modality 'atac', only for rna"):
        views_from_anndata(both, {"rna": SETS}, min_size=3)
    with pytest.raises(TypeError, match=r"data=ndarray: give an AnnData or a MuData"):
        views_from_anndata(COUNTS, SETS)
    with pytest.raises(TypeError, match=r"gene_sets=\['G0'\]: give a dict"):
        views_from_anndata(annotated(), ["G0"])
    with pytest.raises(ValueError, match=r"modality 'atac': layer='z'"):
        views_from_anndata(both, SETS, layer={"atac": "z"}, min_size=3)


def test_an_annotated_matrix_itself_is_answered_with_the_line_to_write():
    adata = annotated()
    adata.to_df = None
    for call in (
        MKLClassifier().fit,
        MKLClassifierCV().fit,
        MKLRegressor().fit,
        PathSearchCV(MKLClassifier()).fit,
    ):
        with pytest.raises(
            TypeError,
            match=r"\(48 × 12\): write X, kernels = views_from_anndata\(adata, gene_sets\)",
        ):
            call(adata, TYPES)
    model = MKLClassifier().fit(COUNTS, TYPES)
    with pytest.raises(TypeError, match="write X, kernels = views_from_anndata"):
        model.predict(adata)


def fitted(adata, **options):
    X, kernels = views_from_anndata(adata, SETS, min_size=3)
    return MKLClassifierCV(kernels, Cs=[1.0], norms=1, cv=2, **options).fit(X, TYPES), X


def test_what_a_model_says_is_written():
    adata = annotated()
    model, X = fitted(adata)
    assert to_anndata(model, adata, key="fit") is adata
    assert adata.obs["fit"].astype(str).tolist() == model.predict(X).tolist()
    assert list(adata.obs["fit"].cat.categories) == list(model.classes_)
    probabilities = adata.obsm["fit_probabilities"]
    assert probabilities.columns.tolist() == ["B", "CD4+|CD25 T", "NK"]
    np.testing.assert_array_equal(probabilities, model.predict_proba(X))
    shares = adata.obsm["fit_contributions"]
    own = np.searchsorted(model.classes_, model.predict(X))
    np.testing.assert_allclose(
        shares.sum(axis=1) + model.intercept_[own],
        model.decision_function(X)[np.arange(N), own],
        atol=1e-9,
    )
    weights = adata.uns["fit"]["weights"]
    assert weights.index.tolist() == list(model.classes_)
    np.testing.assert_array_equal(weights, model.weights_)
    again = annotated()
    to_anndata(model, again, key="fit", X=X)
    pd.testing.assert_frame_equal(again.obsm["fit_contributions"], shares)


def test_two_classes_numbers_and_searches_are_written():
    adata = annotated()
    X, kernels = views_from_anndata(adata, SETS, min_size=3)
    to_anndata(
        PathSearchCV(MKLClassifier(kernels), Cs=[1.0], cv=2).fit(X, TYPES == "B"), adata, "two"
    )
    assert adata.uns["two"]["weights"].index.tolist() == ["all classes"]
    assert adata.obsm["two_probabilities"].columns.tolist() == ["False", "True"]
    model = MKLRegressor(kernels).fit(X, COUNTS[:, 0])
    to_anndata(model, adata, "number")
    assert "number_probabilities" not in adata.obsm
    np.testing.assert_array_equal(adata.obs["number"], model.predict(X))
    with pytest.raises(ValueError, match="fitted to columns without names"):
        to_anndata(MKLRegressor().fit(COUNTS, COUNTS[:, 0]), adata)
    with pytest.raises(ValueError, match=r"X has 5 rows, and data has 48 cells"):
        to_anndata(model, adata, X=X[:5])
    with pytest.raises(ValueError, match="multi_class='ovr'"):
        to_anndata(MKLClassifier(kernels, multi_class="pairwise").fit(X, TYPES), adata)


def test_frames_of_inspection():
    X, kernels = views_from_anndata(annotated(), SETS, min_size=3)
    model = MKLClassifier(kernels)
    draws = stability(model, X, TYPES, n_resamples=2, random_state=0)
    frame = draws.to_frame()
    assert frame.index.tolist()[:2] == ["B: one", "B: two"]
    np.testing.assert_array_equal(frame["selection_frequency"], draws.selection_frequencies.ravel())
    loss = kernel_importance(model, X, TYPES, cv=2, n_repeats=1, base=["one"], random_state=0)
    assert loss.to_frame().columns.tolist()[-2:] == ["gain_mean", "gain_std"]
    np.testing.assert_array_equal(loss.to_frame()["permutation_mean"], loss.permutation_mean)
    genes = feature_importance(model.fit(X, TYPES), X, random_state=0).to_frame()
    assert (
        genes.groupby("view", sort=False)["importance"]
        .apply(lambda one: one.is_monotonic_decreasing)
        .all()
    )


def test_a_round_trip_through_h5ad(tmp_path):
    anndata = pytest.importorskip("anndata")
    adata = anndata.AnnData(
        sparse.csr_matrix(COUNTS),
        obs=pd.DataFrame({"type": TYPES}, index=CELLS),
        var=pd.DataFrame(index=GENES),
    )
    model, X = fitted(adata)
    with pytest.raises(TypeError, match=r"X is an AnnData \(48 × 12\)"):
        MKLClassifier().fit(adata, adata.obs["type"])
    to_anndata(model, adata)
    adata.uns["stability"] = stability(
        MKLClassifier(model.kernels), X, TYPES, n_resamples=2, random_state=0
    ).to_frame()
    path = tmp_path / "cells.h5ad"
    # From pandas 3 on names are strings of a type that anndata writes if asked to.
    anndata.settings.allow_write_nullable_strings = True
    adata.write_h5ad(path)
    back = anndata.read_h5ad(path)
    assert back.obs["mkl"].tolist() == adata.obs["mkl"].tolist()
    for name in ("mkl_probabilities", "mkl_contributions"):
        # Names come back as strings of another type.
        pd.testing.assert_frame_equal(
            back.obsm[name], adata.obsm[name], check_index_type=False, check_column_type=False
        )
    np.testing.assert_array_equal(back.uns["mkl"]["weights"], model.weights_)
    assert back.uns["mkl"]["weights"].index.tolist() == list(model.classes_)
    assert back.uns["stability"].index.tolist() == adata.uns["stability"].index.tolist()
    backed = anndata.read_h5ad(path, backed="r")
    read, _ = views_from_anndata(backed, SETS, min_size=3)
    np.testing.assert_array_equal(read.toarray(), X.toarray())


def test_a_real_mudata():
    anndata, mudata = pytest.importorskip("anndata"), pytest.importorskip("mudata")
    cells = pd.DataFrame(index=CELLS)
    rna = anndata.AnnData(sparse.csr_matrix(COUNTS), obs=cells, var=pd.DataFrame(index=GENES))
    atac = anndata.AnnData(
        sparse.csr_matrix(COUNTS[10:, :4]),
        obs=cells[10:],
        var=pd.DataFrame(index=[f"P{j}" for j in range(4)]),
    )
    both = mudata.MuData({"rna": rna, "atac": atac})
    X, kernels = views_from_anndata(both, {"rna": SETS, "atac": {"open": ["P0", "P3"]}}, min_size=2)
    assert X.shape == (N, 11)
    assert int(X.lacking["atac"].sum()) == 10
    assert isinstance(stack_views(both).X, SparseTable)
    model = MKLClassifier(kernels).fit(X, TYPES)
    assert "mkl_contributions" in to_anndata(model, both, X=X).obsm


@pytest.mark.parametrize("form", [sparse.csr_matrix, np.asarray])
def test_results_are_written_by_the_names_of_cells(form):
    adata = annotated(form(COUNTS))
    model, X = fitted(adata)
    expected = to_anndata(model, annotated(form(COUNTS)), X=X)
    order = np.random.RandomState(1).permutation(N)
    shuffled = X.iloc[order] if hasattr(X, "iloc") else X[order]
    assert list(shuffled.index) == [CELLS[i] for i in order]
    written = to_anndata(model, annotated(form(COUNTS)), X=shuffled)
    assert written.obs["mkl"].tolist() == expected.obs["mkl"].tolist()
    for name in ("mkl_probabilities", "mkl_contributions"):
        pd.testing.assert_frame_equal(written.obsm[name], expected.obsm[name])
    # Rows without names are the cells in their order.
    dense = X.toarray() if sparse.issparse(X) else X.to_numpy()
    plain = pd.DataFrame(dense, columns=X.columns)
    assert (
        to_anndata(model, annotated(form(COUNTS)), X=plain).obs["mkl"].tolist()
        == expected.obs["mkl"].tolist()
    )
    # Names that are not those of the cells are refused, and so are those that several rows have.
    for names, message in (
        ([f"other{i}" for i in range(N)], "X has no row for the cell"),
        ([CELLS[1], *CELLS[1:]], "is the name of several rows"),
    ):
        with pytest.raises(ValueError, match=message):
            to_anndata(model, annotated(form(COUNTS)), X=plain.set_axis(names, axis=0))
