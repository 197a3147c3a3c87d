"""Embedding and clusters of several views without labels, against scikit-learn on the summed
kernel."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.spatial.distance import pdist
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.decomposition import KernelPCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score, silhouette_samples
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.neighbors import kneighbors_graph
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KernelCenterer, StandardScaler

from kernelmosaic import MKLClustering, MKLKernelPCA
from kernelmosaic.kernels import Gaussian, Linear, Precomputed, by_group

RNG = np.random.RandomState(0)
GROUP = np.arange(90) % 3
VIEWS = {
    "a": 4.0 * np.eye(3)[GROUP] + RNG.standard_normal((90, 3)),
    "b": 3.0 * RNG.standard_normal((3, 5))[GROUP] + RNG.standard_normal((90, 5)),
    "noise": RNG.standard_normal((90, 4)),
}
TWO = {name: VIEWS[name] for name in ("a", "b")}
X = np.hstack(list(VIEWS.values()))
COLUMNS = {"a": [0, 1, 2], "b": [3, 4, 5, 6, 7], "noise": [8, 9, 10, 11]}
KERNELS = by_group(COLUMNS, [Gaussian()])
TRAIN, NEW = np.arange(70), np.arange(70, 90)


def rows(views, which):
    return {name: table[which] for name, table in views.items()}


def reference(train, new):
    """The mean of the Gaussians of the median width, centred and of unit trace, by scikit-learn
    alone."""
    K, across = 0.0, 0.0
    for A, B in zip(train.values(), new.values(), strict=True):
        scaler = StandardScaler().fit(A)
        A, B = scaler.transform(A), scaler.transform(B)
        gamma = 1.0 / np.median(pdist(A)) ** 2
        center = KernelCenterer().fit(rbf_kernel(A, gamma=gamma))
        own = center.transform(rbf_kernel(A, gamma=gamma))
        K, across = (
            K + own / np.trace(own),
            across + center.transform(rbf_kernel(B, A, gamma=gamma)) / np.trace(own),
        )
    return len(A) * K / len(train), len(A) * across / len(train)


# The embedding ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [70, 520])
def test_it_is_kernel_pca_of_the_summed_kernel(n):
    rng = np.random.RandomState(1)
    hidden = rng.standard_normal((n + 20, 3))
    views = {"u": hidden @ rng.standard_normal((3, 6)), "v": np.sin(hidden)}
    train, new = rows(views, slice(0, n)), rows(views, slice(n, None))
    model = MKLKernelPCA(n_components=4, weights="equal", random_state=0).fit(train)
    K, across = reference(train, new)
    theirs = KernelPCA(4, kernel="precomputed").fit(K)
    signs = np.sign(np.sum(theirs.transform(K) * model.embedding_, axis=0))
    np.testing.assert_allclose(model.eigenvalues_, theirs.eigenvalues_, rtol=1e-8)
    np.testing.assert_allclose(model.embedding_, signs * theirs.transform(K), atol=1e-8)
    np.testing.assert_allclose(model.transform(new), signs * theirs.transform(across), atol=1e-8)
    np.testing.assert_allclose(model.transform(train), model.embedding_, atol=1e-8)
    np.testing.assert_allclose(model.explained_, theirs.eigenvalues_ / np.trace(K), rtol=1e-8)


def test_attributes_and_names():
    with pytest.warns(UserWarning, match=r"'noise' left out.*weights='equal' keeps"):
        model = MKLKernelPCA(KERNELS, 3).set_output(transform="pandas").fit(X)
    assert model.views_ == ["a", "b", "noise"]
    assert model.view_weights_ == {"a": 0.5, "b": 0.5, "noise": 0.0}
    assert model.similarity_.shape == model.pvalues_.shape == (3, 3)
    assert model.pvalues_[0, 1] < 0.05 < model.pvalues_[:2, 2].min()
    frame = model.transform(X)
    assert (
        list(frame.columns)
        == list(model.get_feature_names_out())
        == [f"mklkernelpca{i}" for i in range(3)]
    )
    np.testing.assert_allclose(frame, model.embedding_, atol=1e-10)
    terms = model.contributions(X).sum(axis=1) + model.intercept_
    np.testing.assert_allclose(terms, model.embedding_, atol=1e-10)


def test_weights_by_rule_and_given():
    kernels = by_group(COLUMNS, [Gaussian(), Linear()])
    equal = MKLKernelPCA(kernels, weights="equal").fit(X)
    np.testing.assert_allclose(equal.weights_, 1 / 6)
    uneven = MKLKernelPCA(
        [*by_group({"a": COLUMNS["a"]}, [Gaussian(), Linear()]), *KERNELS[1:2]], weights="equal"
    )
    np.testing.assert_allclose(uneven.fit(X).weights_, [0.25, 0.25, 0.5])
    statis = MKLKernelPCA(KERNELS, weights="statis").fit(X)
    assert statis.weights_.sum() == pytest.approx(1.0)
    assert statis.view_weights_["noise"] < min(statis.view_weights_[name] for name in ("a", "b"))
    given = MKLKernelPCA(KERNELS, weights=[0.0, 2.0, 0.0]).fit(X)
    alone = MKLKernelPCA(KERNELS[1:2]).fit(X)
    np.testing.assert_allclose(given.embedding_, np.sqrt(2) * alone.embedding_, atol=1e-10)


def test_one_view_has_nothing_to_compare():
    model = MKLKernelPCA().fit(VIEWS["a"])
    assert model.views_ == ["gaussian"]
    np.testing.assert_array_equal(model.pvalues_, [[0.0]])


def test_views_that_are_all_independent_stay():
    rng = np.random.RandomState(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = MKLKernelPCA().fit([rng.standard_normal((40, 2)) for _ in range(3)])
    np.testing.assert_allclose(model.weights_, 1 / 3)


def test_a_confounder_given_twice_is_left_out():
    rng = np.random.RandomState(0)
    batch = 3.0 * rng.standard_normal((2, 4))[rng.randint(2, size=90)] + rng.standard_normal(
        (90, 4)
    )
    again = batch + 0.05 * rng.standard_normal(batch.shape)
    with pytest.warns(UserWarning, match=r"'batch', 'again' left out, .* duplicates aside"):
        model = MKLKernelPCA().fit(TWO | {"batch": batch, "again": again})
    np.testing.assert_allclose(model.weights_, [0.5, 0.5, 0.0, 0.0])
    # Without a second measurement, the copies are all that depends on another view.
    with pytest.warns(UserWarning, match=r"'noise' left out"):
        model = MKLKernelPCA().fit(
            {"batch": batch, "again": again, "noise": rng.standard_normal((90, 3))}
        )
    np.testing.assert_allclose(model.weights_, [0.5, 0.5, 0.0])


def test_a_constant_view_is_named_and_has_no_part():
    with pytest.warns(UserWarning, match=r"'still, gaussian' is constant on the training set"):
        model = MKLKernelPCA(weights="equal").fit(TWO | {"still": np.ones((90, 2))})
    two = MKLKernelPCA(weights="equal").fit(TWO)
    np.testing.assert_allclose(model.embedding_, np.sqrt(2 / 3) * two.embedding_, atol=1e-10)


@pytest.mark.parametrize("n", [6, 501])
@pytest.mark.parametrize(
    "model",
    [
        *(MKLKernelPCA(weights=rule) for rule in ("equal", "screen", "statis")),
        MKLClustering(2),
        MKLClustering(2, embedding="graph"),
    ],
    ids=repr,
)
def test_samples_that_are_all_the_same_are_one_error(model, n):
    with pytest.raises(ValueError, match="every view is the same for all samples"):
        model.fit(np.full((n, 3), 3.0))


@pytest.mark.parametrize("rule", ["equal", "screen", "statis"])
def test_views_that_no_sample_has_both_of_are_linked_by_a_third(rule):
    random = np.random.default_rng(0)
    hidden = random.standard_normal((60, 2))
    views = {name: hidden @ random.standard_normal((2, 4)) for name in ("rna", "protein", "atac")}
    views["rna"][40:], views["atac"][:40] = np.nan, np.nan
    model = MKLKernelPCA(weights=rule).fit(views)
    assert model.similarity_[0, 2] == 0.0
    assert np.isfinite(model.embedding_).all()
    # The samples of both parts are placed by what they share with the view that all have.
    Q = np.linalg.qr(hidden - hidden.mean(axis=0))[0]
    assert np.linalg.norm(Q.T @ np.linalg.qr(model.embedding_)[0]) > 1.0


def test_a_kernel_that_is_written_three_times_changes_no_weights_of_statis():
    once = [("a", Gaussian(1.0), COLUMNS["a"]), ("b", Gaussian(1.0), COLUMNS["b"])]
    again = [(f"a{k}", Gaussian(1.0), COLUMNS["a"]) for k in range(3)]
    plain = MKLKernelPCA(once, weights="statis").fit(X)
    thrice = MKLKernelPCA([*again, once[1]], weights="statis").fit(X)
    np.testing.assert_allclose(thrice.weights_[:3], plain.weights_[0] / 3, rtol=1e-10)
    np.testing.assert_allclose(thrice.embedding_, plain.embedding_, atol=1e-8)


def test_sparse_single_precision_features_and_matrices_agree():
    kernels = by_group({"a": COLUMNS["a"], "b": COLUMNS["b"]}, [Gaussian()])
    plain = MKLKernelPCA(kernels, scale=False).fit(X)
    for given in (sparse.csr_array(X), X.astype(np.float32)):
        found = MKLKernelPCA(kernels, scale=False).fit(given)
        np.testing.assert_allclose(found.embedding_, plain.embedding_, atol=1e-5)
        np.testing.assert_allclose(found.transform(given), plain.embedding_, atol=1e-5)
    features = MKLKernelPCA(
        kernels, scale=False, approximation="nystroem", rank=90, random_state=0
    ).fit(X)
    np.testing.assert_allclose(np.abs(features.embedding_), np.abs(plain.embedding_), atol=1e-6)
    np.testing.assert_allclose(features.transform(X), features.embedding_, atol=1e-8)
    matrices = [
        (name, Precomputed(rbf_kernel(VIEWS[name], gamma=1 / np.median(pdist(VIEWS[name])) ** 2)))
        for name in TWO
    ]
    given = MKLKernelPCA(matrices).fit(np.arange(90))
    np.testing.assert_allclose(given.embedding_, plain.embedding_, atol=1e-8)
    assert given.views_ == ["a", "b"]


def test_on_a_device(device):
    plain = MKLKernelPCA(KERNELS, weights="equal").fit(X)
    found = MKLKernelPCA(KERNELS, weights="equal", device=device).fit(X)
    np.testing.assert_allclose(found.embedding_, plain.embedding_, atol=1e-5)
    graph = MKLClustering(
        3, KERNELS, embedding="graph", weights="equal", device=device, random_state=0
    ).fit(X)
    assert adjusted_rand_score(graph.predict(X), graph.labels_) > 0.9


def test_in_a_pipeline():
    model = make_pipeline(MKLKernelPCA(KERNELS[:2], 4), LogisticRegression()).fit(
        X[TRAIN], GROUP[TRAIN]
    )
    assert model.score(X[NEW], GROUP[NEW]) > 0.9


# Views that samples lack --------------------------------------------------------------------------


def lacking():
    views = {name: table.copy() for name, table in TWO.items()}
    views["a"][::7], views["b"][3::7] = np.nan, np.nan
    return views


@pytest.mark.parametrize("rule", ["neighbors", "zero"])
def test_samples_may_lack_views(rule):
    views = lacking()
    model = MKLKernelPCA(n_components=4, missing=rule).fit(rows(views, TRAIN))
    K = model.kernel_matrix(rows(views, TRAIN))
    assert np.linalg.eigvalsh(K).min() > -1e-10
    theirs = KernelPCA(4, kernel="precomputed").fit(K)
    np.testing.assert_allclose(np.abs(model.embedding_), np.abs(theirs.transform(K)), atol=1e-8)
    np.testing.assert_allclose(model.transform(rows(views, TRAIN)), model.embedding_, atol=1e-8)
    across = model.kernel_matrix(rows(views, NEW), rows(views, TRAIN))
    np.testing.assert_allclose(
        np.abs(model.transform(rows(views, NEW))), np.abs(theirs.transform(across)), atol=1e-8
    )
    for embedding in ("kernel", "graph"):
        found = MKLClustering(3, embedding=embedding, missing=rule, random_state=0).fit(
            rows(views, TRAIN)
        )
        assert adjusted_rand_score(found.labels_, GROUP[TRAIN]) > 0.9
        assert adjusted_rand_score(found.predict(rows(views, NEW)), GROUP[NEW]) > 0.8


def test_zero_is_the_product_of_what_both_samples_have():
    views = lacking()
    model = MKLKernelPCA(missing="zero").fit(views)
    K, expected = model.kernel_matrix(views), 0.0
    has = {name: ~np.isnan(table).any(axis=1) for name, table in views.items()}
    count = sum(has.values())
    for name, table in views.items():
        here = has[name]
        A = StandardScaler().fit_transform(table[here])
        own = KernelCenterer().fit_transform(rbf_kernel(A, gamma=1 / np.median(pdist(A)) ** 2))
        part = np.zeros((90, 90))
        part[np.ix_(here, here)] = own / np.trace(own) * here.sum()
        expected = expected + part / 2 * np.sqrt(2 / count) * np.sqrt(2 / count)[:, None]
    np.testing.assert_allclose(K, expected, atol=1e-10)


def test_the_screen_reads_what_samples_have_themselves():
    """What stands in for a view comes from its neighbours by the others, and would make any view
    alike to them."""
    rng = np.random.RandomState(2)
    noise = rng.standard_normal((90, 3))
    noise[rng.permutation(90)[:45]] = np.nan
    with pytest.warns(UserWarning, match="'noise' left out"):
        model = MKLKernelPCA().fit(TWO | {"noise": noise})
    here = ~np.isnan(noise).any(axis=1)
    with pytest.warns(UserWarning, match="'noise' left out"):
        complete = MKLKernelPCA(
            scale=False, kernels=[(name, Gaussian(2.0), name) for name in (*TWO, "noise")]
        ).fit(rows(TWO | {"noise": noise}, here))
    partial = MKLKernelPCA(complete.kernels, scale=False, weights="equal").fit(
        TWO | {"noise": noise}
    )
    np.testing.assert_allclose(partial.similarity_[2], complete.similarity_[2], atol=1e-10)
    assert model.weights_[2] == 0.0


# Clusters -----------------------------------------------------------------------------------------


def test_kernel_clusters_are_k_means_of_the_components():
    model = MKLClustering(3, weights="equal", random_state=0).fit(VIEWS)
    embedding = MKLKernelPCA(n_components=6, weights="equal").fit_transform(VIEWS)
    # A component U √λ has the length √λ; U λ^¼ is what is clustered.
    embedding /= np.sqrt(np.linalg.norm(embedding, axis=0))
    embedding /= np.linalg.norm(embedding, axis=1, keepdims=True)
    np.testing.assert_allclose(model.embedding_, embedding, atol=1e-12)
    theirs = KMeans(3, n_init=10, random_state=0).fit(embedding)
    assert adjusted_rand_score(model.labels_, theirs.labels_) == 1.0
    assert adjusted_rand_score(model.labels_, GROUP) > 0.9
    np.testing.assert_array_equal(model.predict(VIEWS), model.labels_)
    np.testing.assert_allclose(
        model.silhouette_, silhouette_samples(embedding, model.labels_), atol=1e-10
    )
    np.testing.assert_array_equal(model.fit_predict(VIEWS), model.labels_)


@pytest.mark.filterwarnings("ignore:Graph is not fully connected:UserWarning")
def test_graph_clusters_are_those_of_spectral_clustering():
    model = MKLClustering(3, weights="equal", embedding="graph", random_state=0).fit(VIEWS)
    assert model.n_neighbors_ == 7
    K = reference(VIEWS, VIEWS)[0]
    apart = np.sqrt(np.maximum(np.diag(K) + np.diag(K)[:, None] - 2 * K, 0.0))
    A = kneighbors_graph(apart, 7, metric="precomputed").toarray()
    theirs = SpectralClustering(3, affinity="precomputed", random_state=0).fit((A + A.T) / 2)
    assert adjusted_rand_score(model.labels_, theirs.labels_) == 1.0
    assert model.embedding_.shape == (90, 3)


@pytest.mark.parametrize("embedding", ["kernel", "graph"])
def test_new_samples_join_the_cluster_they_belong_to(embedding):
    model = MKLClustering(3, embedding=embedding, random_state=0).fit(rows(TWO, TRAIN))
    joint = MKLClustering(3, embedding=embedding, random_state=0).fit(TWO)
    assert adjusted_rand_score(model.predict(rows(TWO, NEW)), joint.labels_[NEW]) == 1.0
    assert model.embed(rows(TWO, NEW)).shape == (20, model.embedding_.shape[1])


@pytest.mark.parametrize("embedding", ["kernel", "graph"])
def test_a_number_of_clusters_is_suggested(embedding):
    model = MKLClustering(embedding=embedding, random_state=0).fit(TWO)
    assert model.n_clusters_ == 3
    assert adjusted_rand_score(model.labels_, GROUP) > 0.9
    assert model.embedding_.shape == (90, 6 if embedding == "kernel" else 3)


def test_frames_give_new_samples_by_name():
    frames = {name: pd.DataFrame(table).add_prefix("c") for name, table in TWO.items()}
    model = MKLClustering(3, random_state=0).fit(frames)
    np.testing.assert_array_equal(
        model.predict(frames), MKLClustering(3, random_state=0).fit(TWO).labels_
    )


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "given", "words"),
    [
        (MKLKernelPCA(), X[:1], r"X has n_samples=1.*give at least two"),
        (MKLKernelPCA(), np.ones((9, 2)), r"every view is the same for all samples"),
        (MKLKernelPCA(n_components=0), X, r"n_components=0: give a whole number of at least 1"),
        (MKLKernelPCA(weights="rv"), X, r"weights='rv': choose one of 'screen', 'equal', 'statis'"),
        (MKLKernelPCA(weights=[1.0, 2.0]), X, r"weights has shape \(2,\), but there are 1 kernels"),
        (MKLKernelPCA(missing="mean"), X, r"missing='mean'"),
        (
            MKLKernelPCA(),
            {"a": np.full((5, 2), np.nan), "b": np.full((5, 2), np.nan)},
            r"has no view at all",
        ),
        (MKLClustering(91), X, r"n_clusters=91: X has 90 samples"),
        (
            MKLClustering("many"),
            X,
            r"n_clusters='many': choose one of 'auto', or give a whole number",
        ),
        (MKLClustering(2, n_neighbors=90), X, r"n_neighbors=90: X has 90 samples; give at most 89"),
        (MKLClustering(2, embedding="tree"), X, r"embedding='tree'"),
        (MKLClustering(2, n_components=1.5), X, r"n_components=1.5: give a whole number"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*is constant on the training set:UserWarning")
def test_bad_input_is_one_sentence(model, given, words):
    with pytest.raises(ValueError, match=words) as error:
        model.fit(given)
    assert "\n" not in str(error.value)
