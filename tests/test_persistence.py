"""Model files: what comes back is what went in, and what should not come in does not."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import subprocess
import sys
import tracemalloc
import warnings
import zipfile
from functools import cache, partial
from importlib import import_module
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import skops.io
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import FeatureAgglomeration
from sklearn.compose import make_column_selector
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning, InconsistentVersionWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.feature_selection import (
    RFE,
    GenericUnivariateSelect,
    SelectKBest,
    SelectPercentile,
    chi2,
    mutual_info_classif,
)
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    SplineTransformer,
    StandardScaler,
    scale,
)
from sklearn.svm import SVC
from tests.sweeps import thinned

import kernelmosaic
from kernelmosaic import (
    BayesianMKLClassifier,
    BilinearMKLClassifier,
    DiscriminantMKLClassifier,
    LocalizedBayesianMKLClassifier,
    LocalizedMKLClassifier,
    LocalizedMKLOneClass,
    LocalizedMKLRegressor,
    MKLClassifier,
    MKLClassifierCV,
    MKLClustering,
    MKLKernelPCA,
    MKLOneClass,
    MKLRegressor,
    MKLRegressorCV,
    MKLRidgeClassifierCV,
    MKLRidgeCV,
    MKLSurvival,
    MKLSurvivalCV,
    PosteriorMKLClassifier,
    load,
    persistence,
    save,
)
from kernelmosaic.gating import GaussianGating, Sigmoid
from kernelmosaic.kernels import (
    Correlation,
    Diffusion,
    Gaussian,
    Laplacian,
    Linear,
    Polynomial,
    Precomputed,
    Projected,
    Ranked,
    Spectrum,
    WeightedDegree,
    family,
    per_column,
)
from kernelmosaic.localized.learning import ArmijoStep
from kernelmosaic.model_selection import FiveByTwoFold, PathSearchCV, ResponseSurfaceSearchCV
from kernelmosaic.stacking import SparseTable

RNG = np.random.RandomState(0)
X = RNG.normal(size=(36, 3))
Y = np.digitize(X[:, 0] + 0.3 * RNG.normal(size=36), [-0.4, 0.4])
TWO = np.where(Y > 0, "yes", "no")
FRAME = pd.DataFrame(X, columns=["fac__0", "fac__1", "fou__0"])
WORDS = ["".join(RNG.choice(list("ACGT"), 8)) for _ in range(36)]
ROWS = np.arange(36)
FAST = {"n_init": 1, "max_iter": 4}
NAMED = [
    ("line", Linear(), ["fac__0"]),
    ("bell", Gaussian(), make_column_selector(pattern="^fac__")),
]
GRAPH = np.abs(np.subtract.outer(ROWS, ROWS)) == 1

COUNTS = sparse.random_array((36, 620), density=0.1, format="csr", random_state=0)
TABLE = SparseTable(COUNTS, columns=np.array([f"gene {j}" for j in range(620)]))

MODELS = {
    "classifier": (MKLClassifier(class_weight={0: 1.0, 1: 2.0, 2: 1.0}), X, Y),
    "text classes": (MKLClassifier(normalize="centered", slack=2, C="learn"), X, TWO),
    "uniform": (MKLClassifier(weights="uniform", normalize="diagonal"), X, TWO),
    "joint": (MKLClassifier(multi_class="joint", norm=2), X, Y),
    "tuned": (MKLClassifierCV(Cs=[1, 10], cv=2, calibration="isotonic"), X, Y),
    "survival": (MKLSurvival(), X, np.column_stack([X[:, 0] > X[:, 0].min(), np.exp(X[:, 1])])),
    "hazards": (MKLSurvival(loss="cox"), X, np.exp(X[:, 1])),
    "tuned survival": (PathSearchCV(MKLSurvival(), Cs=[1, 10], cv=2), X, np.exp(X[:, 1])),
    "tuned hazards": (MKLSurvivalCV(Cs=[0.1, 1], norms=["uniform"], cv=2), X, np.exp(X[:, 1])),
    "tuned regressor": (MKLRegressorCV(Cs=[1, 10], cv=2), X, X[:, 1]),
    "ridge": (MKLRidgeCV([Linear(), Gaussian()], criterion="evidence"), X, X[:, :2]),
    "ridge classifier": (MKLRidgeClassifierCV([Linear(), Ranked(Laplacian())]), X, Y),
    "tuned localized": (PathSearchCV(LocalizedMKLClassifier(**FAST), Cs=[10], cv=2), X, TWO),
    "tuned discriminant": (
        PathSearchCV(DiscriminantMKLClassifier(), Cs=[0.1, 1], norms=(1, "uniform"), cv=2),
        X,
        Y,
    ),
    "regressor": (MKLRegressor(penalties=np.array([1.0, 2.0, 3.0, 2.0, 1.0])), X, X[:, 1]),
    "one-class": (MKLOneClass(nu=0.3), X, None),
    "localized": (LocalizedMKLClassifier(**FAST, random_state=np.random.RandomState(1)), X, Y),
    "localized regressor": (LocalizedMKLRegressor(gating=Sigmoid(scale=0.5), **FAST), X, X[:, 1]),
    "localized one-class": (LocalizedMKLOneClass(gating=GaussianGating(), nu=0.4, **FAST), X, None),
    "projected": (
        LocalizedMKLClassifier(
            [Projected(Gaussian(), 1), Projected(Linear(), 2, random_state=0)], **FAST
        ),
        X,
        Y,
    ),
    "gated in a kernel": (
        LocalizedMKLClassifier([Spectrum(2)] * 2, gating_kernel=Spectrum(1), **FAST),
        WORDS,
        TWO,
    ),
    "bayesian": (BayesianMKLClassifier(), X, Y),
    "bayesian, localized": (LocalizedBayesianMKLClassifier(tol=1e-2), X, Y),
    "bilinear": (BilinearMKLClassifier(), X, Y),
    "discriminant": (DiscriminantMKLClassifier(alpha="learn"), X, Y),
    "posterior": (PosteriorMKLClassifier(), X, Y),
    "components": (MKLKernelPCA([Linear(), Gaussian()], 3), X, None),
    "clusters": (MKLClustering(3, random_state=0), X, None),
    "clusters of a graph": (
        MKLClustering(3, NAMED, embedding="graph", random_state=0),
        FRAME,
        None,
    ),
    "search": (
        ResponseSurfaceSearchCV(MKLClassifier(), on=["C"], cv=2, max_iter=2, scoring="accuracy"),
        X,
        TWO,
    ),
    "grid": (
        GridSearchCV(MKLClassifier(), {"C": [0.1, 1.0]}, cv=FiveByTwoFold(random_state=0)),
        X,
        TWO,
    ),
    "pipeline": (
        make_pipeline(StandardScaler(), FunctionTransformer(np.tanh), MKLClassifier()),
        X,
        Y,
    ),
    "strings": (MKLClassifier([Spectrum(2), WeightedDegree(2)]), WORDS, TWO),
    "matrix": (MKLClassifier([Precomputed(X @ X.T)], weights="uniform"), ROWS, TWO),
    "graph": (MKLClassifier([Diffusion(GRAPH.astype(float))], weights="uniform"), ROWS, TWO),
    "algebra": (
        MKLClassifier([2.0 * Linear() * Gaussian() + Polynomial(3), Correlation()]),
        X,
        TWO,
    ),
    "families": (
        MKLClassifier([*family(Gaussian(), width=[0.5, 2.0], factor=[1, 3]), per_column(Linear())]),
        X,
        TWO,
    ),
    "frame": (MKLClassifier(NAMED), FRAME, TWO),
    "nystroem": (
        MKLClassifier([Gaussian(1.0), Gaussian(3.0)], approximation="nystroem", rank=10),
        X,
        Y,
    ),
    "fourier": (
        MKLRegressor([Gaussian(1.0), Linear()], approximation="fourier", rank=20),
        X,
        X[:, 1],
    ),
    "step": (LocalizedMKLClassifier(step=ArmijoStep(), **FAST), X, TWO),
    "slice": (MKLClassifier([("few", Linear(), slice(0, 2))]), X, TWO),
    "sparse": (MKLClassifier([Linear(), Gaussian()]), COUNTS, TWO),
    "sparse matrix": (MKLRidgeClassifierCV([Linear(), Gaussian()]), sparse.csr_matrix(COUNTS), TWO),
    "sparse table": (MKLClassifier([Linear(), Gaussian()]), TABLE, TWO),
}


class Fitted(dict):
    """Every model and its samples, fitted once, by the first test that asks for it."""

    def __missing__(self, name):
        model, data, y = MODELS[name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self[name] = model.fit(data, y), data
        return self[name]


@pytest.fixture(scope="module")
def fitted():
    return Fitted()


@pytest.fixture(scope="module")
def told(fitted):
    """What every fitted model says of its samples, asked once."""
    return cache(lambda name: everything(*fitted[name]))


def everything(model, data):
    """Whatever a model says of samples."""
    asked = (
        "predict",
        "decision_function",
        "contributions",
        "gate",
        "kernel_matrix",
        "transform",
        "score_samples",
    )
    return {name: getattr(model, name)(data) for name in asked if hasattr(model, name)}


def assert_same(ours, theirs, data, expected=None):
    assert type(ours) is type(theirs)
    expected = everything(theirs, data) if expected is None else expected
    assert expected.keys() & {"predict", "transform"}
    for name, value in everything(ours, data).items():
        np.testing.assert_array_equal(value, expected[name], err_msg=name)
    assert ours.get_params(deep=False).keys() == theirs.get_params(deep=False).keys()
    assert repr(ours).split(" at 0x")[0] == repr(theirs).split(" at 0x")[0]


def test_every_public_estimator_is_among_the_models():
    kinds = {type(model).__name__ for model, _, _ in MODELS.values()}
    assert set(kernelmosaic.estimators.__all__) <= kinds


@pytest.mark.parametrize("name", MODELS)
def test_round_trip(fitted, told, name, tmp_path):
    """By model files and by pickles, in one test: every model is fitted once."""
    model, data = fitted[name]
    assert_same(pickle.loads(pickle.dumps(model)), model, data, told(name))
    save(model, tmp_path / "model.skops")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        back = load(tmp_path / "model.skops")
    # Once more: what was read can be written. What the first reading loses, the second cannot have.
    save(back, tmp_path / "model.skops")
    assert_same(load(tmp_path / "model.skops"), model, data, told(name))


#: joblib pickles, too, but for arrays, whose layouts in memory these have.
@pytest.mark.parametrize("name", thinned(MODELS, ["classifier", "frame", "sparse", "matrix"]))
def test_joblib(fitted, told, name, tmp_path):
    model, data = fitted[name]
    joblib.dump(model, tmp_path / "model.joblib")
    assert_same(joblib.load(tmp_path / "model.joblib"), model, data, told(name))


def test_fitted_attributes_and_feature_names_come_back(fitted, tmp_path):
    model, _ = fitted["frame"]
    save(model, tmp_path / "m")
    back = load(str(tmp_path / "m"))
    assert vars(back).keys() == vars(model).keys()
    assert back.kernel_names_ == model.kernel_names_
    assert back.history_ == model.history_
    np.testing.assert_array_equal(back.feature_names_in_, model.feature_names_in_)
    np.testing.assert_array_equal(back.weights_, model.weights_)
    with pytest.raises(ValueError, match="feature names"):
        back.predict(FRAME[["fou__0", "fac__1", "fac__0"]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert_same(back.fit(FRAME, TWO), model, FRAME)


def test_a_matrix_is_stored_once(tmp_path):
    K = np.random.RandomState(0).normal(size=(120, 120))
    save(
        MKLClassifier([Precomputed(K @ K.T)]).fit(np.arange(100), np.arange(100) % 2),
        tmp_path / "m",
    )
    assert (tmp_path / "m").stat().st_size < 1.5 * K.nbytes


def test_unfitted_estimators_too(tmp_path):
    save(MKLClassifier([("a", Gaussian(width=2.0))], C=3.0), tmp_path / "m")
    assert load(tmp_path / "m").get_params()["kernels__a__width"] == 2.0


def test_the_file_says_what_it_is(fitted, tmp_path):
    save(fitted["bilinear"][0], tmp_path / "m")
    told = persistence.info(tmp_path / "m")
    assert told.kernelmosaic_version == kernelmosaic.__version__
    assert told.estimator == "kernelmosaic.multiclass.bilinear.BilinearMKLClassifier"
    assert told.created.endswith("+00:00")


# What cannot be saved -----------------------------------------------------------------------------


class OwnKernel(Linear):
    """A kernel of the user's."""


def test_what_cannot_be_read_back_is_not_written(tmp_path):
    with pytest.raises(ValueError, match=r"lambda.*make_column_selector"):
        save(
            MKLClassifier([("a", Linear(), lambda frame: ["fac__0"])]).fit(FRAME, TWO),
            tmp_path / "m",
        )
    with pytest.raises(ValueError, match=r"OwnKernel.*trusted"):
        save(MKLClassifier([OwnKernel()]), tmp_path / "m")
    with pytest.raises(ValueError, match="cannot be saved"):
        save(MKLClassifier([Precomputed(pd.DataFrame(np.eye(4)))]), tmp_path / "m")
    with pytest.raises(TypeError, match=r"estimator=\[1\]"):
        save([1], tmp_path / "m")
    with pytest.raises(TypeError, match="estimator object"):
        save(MKLClassifier, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def preprocessing():
    """Return scikit-learn's transformers of numbers, with those of their parameters that hold
    functions or dtypes."""
    return [
        SimpleImputer(),
        SimpleImputer(strategy="most_frequent", add_indicator=True),
        KNNImputer(),
        IterativeImputer(max_iter=2),
        KBinsDiscretizer(3, strategy="uniform"),
        SplineTransformer(3),
        QuantileTransformer(n_quantiles=10),
        PowerTransformer(),
        PolynomialFeatures(),
        FunctionTransformer(np.log1p),
        FunctionTransformer(np.nan_to_num),
        FunctionTransformer(np.clip, kw_args={"a_min": 0.1, "a_max": 0.9}),
        FunctionTransformer(scale),
        FeatureAgglomeration(2),
        FeatureAgglomeration(2, pooling_func=np.median),
        SelectKBest(k=2),
        SelectKBest(mutual_info_classif, k=2),
        SelectKBest(chi2, k=2),
        SelectPercentile(percentile=70),
        GenericUnivariateSelect(),
        RFE(LogisticRegression(), n_features_to_select=2),
        PCA(2),
    ]


@pytest.mark.parametrize("step", preprocessing(), ids=lambda step: type(step).__name__)
def test_pipelines_with_scikit_learns_preprocessing_are_saved(step, tmp_path):
    positive = np.abs(X)
    model = make_pipeline(clone(step), MKLClassifier([Linear()], C=0.1)).fit(positive, TWO)
    save(model, tmp_path / "m")
    again = load(tmp_path / "m")
    np.testing.assert_array_equal(
        again.decision_function(positive), model.decision_function(positive)
    )


def test_functions_that_read_files_or_call_functions_are_not_on_the_list():
    for name in (
        "load",
        "save",
        "fromfile",
        "genfromtxt",
        "apply_along_axis",
        "apply_over_axes",
        "piecewise",
    ):
        assert not persistence.is_trusted(f"numpy.{name}")
    for name in (
        "ctypeslib.load_library",
        "lib.npyio.DataSource",
        "f2py.compile",
        "testing.rundocs",
    ):
        assert not persistence.is_trusted(f"numpy.{name}")
    for name in (
        "tree._export.export_graphviz",
        "datasets._base.load_files",
        "datasets._openml.fetch_openml",
    ):
        assert not persistence.is_trusted(f"sklearn.{name}")
    # Where a module has imported it is not where a function is.
    assert not persistence.is_trusted("sklearn.feature_selection._univariate_selection.check_array")
    assert persistence.is_trusted("sklearn.feature_selection._univariate_selection.f_classif")


def test_a_type_of_ones_own_is_named_twice(tmp_path):
    name = f"{OwnKernel.__module__}.OwnKernel"
    model = MKLClassifier([OwnKernel()]).fit(X, TWO)
    save(model, tmp_path / "m", trusted=[name])
    with pytest.raises(ValueError, match=r"refused: it holds .*OwnKernel"):
        load(tmp_path / "m")
    with pytest.raises(TypeError, match="trusted"):
        load(tmp_path / "m", trusted=[OwnKernel])


def test_a_failing_write_leaves_the_old_file(fitted, tmp_path, monkeypatch):
    save(fitted["classifier"][0], tmp_path / "m")
    before = (tmp_path / "m").read_bytes()

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        save(fitted["regressor"][0], tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


# What is not read ---------------------------------------------------------------------------------


@pytest.fixture
def model_file(fitted, tmp_path):
    path = tmp_path / "model.skops"
    save(fitted["text classes"][0], path)
    return path


def rewritten(path, change, forge_digest=True):
    """Rewrite the members of a model file by `change`, with a digest that fits or the former
    one."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(members.pop("kernelmosaic.json"))
    change(members, header)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        if forge_digest:
            header["digest"] = persistence._digest(archive)
        archive.writestr("kernelmosaic.json", json.dumps(header))
    path.write_bytes(buffer.getvalue())


def edit_schema(old, new):
    def change(members, header):
        assert old in members["schema.json"]
        members["schema.json"] = members["schema.json"].replace(old, new)

    return change


def replace_schema(content):
    def change(members, header):
        members["schema.json"] = content

    return change


def test_a_change_by_hand_is_found(model_file):
    rewritten(model_file, edit_schema(b"centered", b"diagonal"), forge_digest=False)
    with pytest.raises(ValueError, match=r"model\.skops is damaged or was changed: its content"):
        load(model_file)


def malicious(marker):
    """A schema that would write a file, if anyone ran it."""
    text = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "is_json": True}
    argument = text | {"content": json.dumps(f"open({str(marker)!r}, 'w').close()")}
    arguments = {
        "__class__": "tuple",
        "__module__": "builtins",
        "__loader__": "TupleNode",
        "content": [argument],
    }
    call = {
        "__class__": "exec",
        "__module__": "builtins",
        "__loader__": "ConstructorFromReduceNode",
    }
    return json.dumps(
        call | {"content": arguments, "protocol": 0, "_skops_version": "0.16"}
    ).encode()


def test_a_file_that_would_run_code_is_refused_and_runs_none(model_file, tmp_path):
    marker = tmp_path / "ran"
    rewritten(model_file, replace_schema(malicious(marker)))
    with pytest.raises(ValueError, match=r"refused: it holds builtins\.exec"):
        load(model_file)
    assert not marker.exists()


def test_functions_beside_classes_are_not_on_the_list(model_file):
    for name in (
        "os.system",
        "builtins.eval",
        "subprocess.Popen",
        "functools.partial",
        "pickle.loads",
        "joblib.load",
    ):
        assert not persistence.is_trusted(name)
    for module in (
        "cli.fit",
        "persistence",
        "gram.stack",
        "gram.row_blocks",
        "learning.newton",
        "datasets",
    ):
        found = import_module(f"kernelmosaic.{module}")
        names = [
            f"{kind.__module__}.{kind.__name__}"
            for kind in vars(found).values()
            if isinstance(kind, type)
        ]
        assert f"kernelmosaic.{module}" in {name.rpartition(".")[0] for name in names}
        assert not any(
            persistence.is_trusted(name)
            for name in names
            if name.startswith(f"kernelmosaic.{module}.")
        )
    for name in (
        "kernels.numeric.np",
        "kernels.base.refuse_text",
        "kernels.Gaussian",
        "estimators._base.no",
        "no.no",
    ):
        assert not persistence.is_trusted(f"kernelmosaic.{name}")
    for name in (
        "datasets.load_iris",
        "utils._testing.MinimalClassifier",
        "base.BaseEstimator.x",
        "no.No",
    ):
        assert not persistence.is_trusted(f"sklearn.{name}")
    rewritten(model_file, edit_schema(b'"__class__": "Gaussian"', b'"__class__": "popen"'))
    with pytest.raises(ValueError, match=r"refused: it holds .*numeric\.popen"):
        load(model_file)


def test_another_estimator_than_said_is_refused(model_file):
    def change(members, header):
        header["estimator"] = "kernelmosaic.estimators.regressor.MKLRegressor"

    rewritten(model_file, change)
    with pytest.raises(ValueError, match=r"names .*MKLRegressor, and it holds .*MKLClassifier"):
        load(model_file)


@pytest.mark.parametrize("version", ["0.3.0", "0.3.7", "0.5.0", "7.8.9rc1", "0.0.9", None])
def test_another_version_is_refused_with_what_to_do(model_file, capsys, version):
    def change(members, header):
        header.update(kernelmosaic_version=version, something="new")
        members["schema.json"] = b"of another kind"

    rewritten(model_file, change)
    ours = kernelmosaic.__version__
    said = (
        f"{model_file} was written by kernelmosaic {version}, and {ours} reads only files of"
        f" {ours[:3]}: fit and save the model again, or read it with that version (pip install"
        f" kernelmosaic=={version})."
    )
    for read in (load, persistence.info):
        with pytest.raises(ValueError, match=re.escape(said)):
            read(model_file)
    pytest.importorskip("typer")
    from kernelmosaic.cli import main

    assert main(["inspect", str(model_file)]) == 2
    assert capsys.readouterr().err == f"kernelmosaic: {said}\n"


@pytest.mark.parametrize("end", [".0", ".99", ".1rc1"])
def test_files_of_patch_versions_are_read(model_file, end):
    version = ".".join(kernelmosaic.__version__.split(".")[:2]) + end
    rewritten(model_file, lambda members, header: header.update(kernelmosaic_version=version))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(model_file)


def test_another_scikit_learn_is_warned_of(model_file):
    rewritten(model_file, lambda members, header: header.update(sklearn_version="1.5.0"))
    with pytest.warns(InconsistentVersionWarning, match=r"MKLClassifier from version 1\.5\.0"):
        load(model_file)


def test_a_small_file_that_unpacks_to_gigabytes_is_not_unpacked(model_file):
    with (
        zipfile.ZipFile(model_file, "a", zipfile.ZIP_DEFLATED) as archive,
        archive.open("zeros", "w") as member,
    ):
        for _ in range(8):
            member.write(bytes(2**20))
    assert model_file.stat().st_size < 2**20
    for read in (load, persistence.info):
        tracemalloc.start()
        with pytest.raises(ValueError, match=r"unpacks to 8 MiB, above max_bytes=4194304"):
            read(model_file, max_bytes=2**22)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert most < 2**22  # nothing of the eight MiB was unpacked


def test_a_file_is_read_up_to_the_size_allowed(model_file):
    with zipfile.ZipFile(model_file) as archive:
        size = sum(member.file_size for member in archive.infolist())
    load(model_file, max_bytes=size)
    with pytest.raises(ValueError, match="give load a larger max_bytes"):
        load(model_file, max_bytes=size - 1)


class Innocent(BaseEstimator):
    pass


@pytest.mark.parametrize(
    "kind", ["text", "empty", "pickle", "zip", "skops", "header only", "no estimator"]
)
def test_foreign_files_are_refused_in_one_sentence(kind, model_file, tmp_path):
    path = tmp_path / "foreign"
    if kind == "text":
        path.write_text("a,b\n1,2\n")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "pickle":
        path.write_bytes(pickle.dumps(MKLClassifier()))
    elif kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.txt", "text")
    elif kind == "skops":
        skops.io.dump(SVC(), path)
    elif kind == "header only":
        path = model_file
        rewritten(path, lambda members, header: members.clear())
    else:
        path = model_file
        rewritten(path, replace_schema(skops_schema({"not": "an estimator"})))
    with pytest.raises(ValueError, match=path.name) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def skops_schema(content):
    with zipfile.ZipFile(io.BytesIO(skops.io.dumps(content))) as archive:
        return archive.read("schema.json")


@pytest.mark.parametrize("read", [load, persistence.info], ids=["load", "info"])
def test_a_path_without_a_file_says_what_to_give(read, tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"nowhere\.skops: there is no such file; give .*save"
    ) as caught:
        read(tmp_path / "nowhere.skops")
    assert "Errno" not in str(caught.value)
    with pytest.raises(IsADirectoryError, match=f"{tmp_path.name} is a folder; give .*save"):
        read(tmp_path)


def test_a_path_that_cannot_be_written_says_so(tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"m\.skops is in a folder that does not exist; give"
    ):
        save(MKLClassifier(), tmp_path / "none" / "m.skops")
    with pytest.raises(IsADirectoryError, match=f"{tmp_path.name} is a folder; give"):
        save(MKLClassifier(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_types_that_skops_trusts_are_trusted_without_asking_it():
    from skops.io._trusted_types import SKLEARN_ESTIMATOR_TYPE_NAMES

    assert len(SKLEARN_ESTIMATOR_TYPE_NAMES) > 150
    assert [name for name in SKLEARN_ESTIMATOR_TYPE_NAMES if not persistence.is_trusted(name)] == []


def test_model_files_touch_no_module_of_another_package(tmp_path):
    # In a process of its own: skops must not have been imported before.
    code = f"""
import sys, threading
import sklearn.utils
from sklearn.utils import all_estimators
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from kernelmosaic import MKLClassifier, load, save
seen, modules, ready, done = set(), {{}}, threading.Event(), threading.Event()
def look():
    while not done.is_set():
        seen.add(sklearn.utils.all_estimators)
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == "skops":
                modules.setdefault(name, []).append(module) if module not in modules.get(name, []) else None
        # At the end of an import Python itself takes the module out and puts it back.
        gone = [n for n in modules if not modules[n][-1].__spec__._initializing and n not in sys.modules]
        if gone:
            print("gone", gone)
        ready.set()
        done.wait(0.002)
sys.setswitchinterval(1e-5)
thread = threading.Thread(target=look)
thread.start()
ready.wait()
save(make_pipeline(StandardScaler(), MKLClassifier()), {str(tmp_path / "m.skops")!r})
load({str(tmp_path / "m.skops")!r})
import skops.io
before = {{name: module for name, module in sys.modules.items() if name.partition(".")[0] == "skops"}}
for _ in range(3):
    load({str(tmp_path / "m.skops")!r})
done.set()
thread.join()
after = {{name: module for name, module in sys.modules.items() if name.partition(".")[0] == "skops"}}
from skops.io._trusted_types import SKLEARN_ESTIMATOR_TYPE_NAMES as known
assert "sklearn.svm._classes.SVC" in known
assert seen == {{all_estimators}} and sklearn.utils.all_estimators is all_estimators
assert before.keys() == after.keys() and all(before[name] is after[name] for name in before)
assert modules and all(found == [after[name]] for name, found in modules.items())
print("unchanged")
"""
    source = Path(__file__).parents[1] / "src"
    path = os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", code]
    made = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert (made.stdout, made.returncode) == ("unchanged\n", 0), made.stderr


@pytest.mark.parametrize("header", [b"[]", b"{}", b"\xff", b"{", b"null", b"1" * 5000])
def test_headers_that_are_none(model_file, header):
    with zipfile.ZipFile(model_file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(model_file, "w") as archive:
        for name, content in (members | {"kernelmosaic.json": header}).items():
            archive.writestr(name, content)
    with pytest.raises(ValueError, match=r"model\.skops is damaged or was changed"):
        load(model_file)


def test_damage_anywhere_is_an_error_or_harmless(model_file, fitted):
    whole = model_file.read_bytes()
    expected = fitted["text classes"][0].decision_function(X)
    rng = np.random.RandomState(0)
    refusals = []
    for position in rng.randint(len(whole), size=120):
        broken = bytearray(whole)
        broken[position] ^= 1 << rng.randint(8)
        model_file.write_bytes(broken)
        try:
            back = load(model_file)
        except ValueError as error:
            refusals.append(str(error))
        else:  # a bit that means nothing, such as one of a member's date
            np.testing.assert_array_equal(back.decision_function(X), expected)
    assert len(refusals) > 90
    assert all("model.skops" in refusal for refusal in refusals)
    for length in (1, len(whole) // 2, len(whole) - 1):
        model_file.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"model\.skops"):
            load(model_file)


def test_without_skops_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(ImportError, match=r"kernelmosaic\[persistence\]"):
        save(MKLClassifier(), tmp_path / "m")


@pytest.mark.parametrize("path", [None, 5])
def test_what_is_no_path_is_named(path):
    for ask in (load, kernelmosaic.persistence.info, partial(save, MKLClassifier())):
        with pytest.raises(TypeError, match=f"path={path}: give the name of a file"):
            ask(path)
