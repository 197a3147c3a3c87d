"""scikit-learn's own checks: all for every estimator, in their hardest forms; for settings those
they can break."""

from __future__ import annotations

from functools import partial

import pytest
from sklearn.base import is_outlier_detector
from sklearn.model_selection import StratifiedKFold
from sklearn.utils.estimator_checks import estimator_checks_generator

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
)
from kernelmosaic.kernels import Gaussian, Linear, Polynomial, Projected
from kernelmosaic.model_selection import PathSearchCV, SplitConformal
from reproduction.lfda import LFDA

LINE_AND_BELL = [("line", Linear()), ("bell", Gaussian("median"))]
NYSTROEM = {"approximation": "nystroem", "rank": 20, "random_state": 0}
FOURIER = {"approximation": "fourier", "rank": 30, "random_state": 0}
#: What is checked is how they are used, not what they learn: a wide gap, one start and one step of
#: the gates do.
WIDE = {"tol": 0.1}
BRIEF = {"n_init": 1, "max_iter": 1, "tol": 0.3}
ONE_START = {"n_init": 1, "tol": 0.3}

#: One of each class. The default kernels are those of the first two; the others, which read them in
#: the same lines, have fewer here, and theirs in `make campaign`.
CLASSES = [
    MKLClassifier(**WIDE),
    MKLRegressor(**WIDE),
    MKLOneClass([Gaussian()]),
    # The checks know times without censoring.
    MKLSurvival(LINE_AND_BELL, **WIDE),
    BilinearMKLClassifier(LINE_AND_BELL, **WIDE),
    PosteriorMKLClassifier(LINE_AND_BELL, **WIDE),
    DiscriminantMKLClassifier(LINE_AND_BELL, **WIDE),
    BayesianMKLClassifier(LINE_AND_BELL, tol=1e-2),
    LocalizedBayesianMKLClassifier(LINE_AND_BELL, n_init=1, tol=0.3),
    LocalizedMKLClassifier(LINE_AND_BELL, **BRIEF),
    LocalizedMKLRegressor(LINE_AND_BELL, gating="gaussian", **BRIEF),
    LocalizedMKLOneClass([Gaussian(), Gaussian(factor=2.0)], **(BRIEF | {"n_init": 2})),
    MKLClassifierCV([Gaussian()], Cs=[1], norms=["uniform"], cv=2, **WIDE),
    MKLRegressorCV([Gaussian()], Cs=[1], norms=["uniform"], cv=2, **WIDE),
    # One check has times of two values, in order: folds that are not shuffled have one each, and
    # nothing to compare.
    MKLSurvivalCV(
        [Gaussian()],
        Cs=[0.1],
        norms=["uniform"],
        cv=StratifiedKFold(2, shuffle=True, random_state=0),
        **WIDE,
    ),
    MKLRidgeCV(LINE_AND_BELL, **ONE_START),
    MKLRidgeClassifierCV(LINE_AND_BELL, n_init=1),
    MKLKernelPCA(LINE_AND_BELL),
    MKLClustering(kernels=LINE_AND_BELL),
    PathSearchCV(DiscriminantMKLClassifier([Gaussian("median")]), Cs=[0.1], cv=2),
    SplitConformal(MKLRegressor(LINE_AND_BELL, weights="uniform"), random_state=0),
    LFDA(n_components=1),
]
#: Other machines, weights, norms, normalisations, approximations and gates of the same classes: a
#: few, ...
SETTINGS = [
    MKLClassifier(LINE_AND_BELL, multi_class="joint", **WIDE, **NYSTROEM),
    MKLClassifier([Linear()], calibration="sigmoid", **WIDE),
    MKLRegressor([Gaussian("median"), Linear()], **WIDE, **FOURIER),
    MKLRegressor(LINE_AND_BELL, loss="quantile", quantile=0.7, **WIDE),
    MKLOneClass(norm=2, slack=2, normalize="diagonal"),
    MKLSurvival(LINE_AND_BELL, loss="cox", **WIDE),
    MKLSurvival(LINE_AND_BELL, loss="rank", **WIDE),
    DiscriminantMKLClassifier(
        LINE_AND_BELL, solver="silp", alpha="learn", decision="centroid", **WIDE
    ),
    LocalizedMKLClassifier([Projected(Linear(), 1), Linear()], **BRIEF),
    MKLRidgeCV(LINE_AND_BELL, per_target=True, **ONE_START),
    MKLClustering(embedding="graph"),
    MKLKernelPCA(**NYSTROEM),
]
#: ... and those that `make campaign` checks.
MORE_SETTINGS = [
    MKLClassifier(multi_class="joint", **NYSTROEM),
    MKLRegressor(loss="quantile", quantile=0.7),
    MKLSurvival(loss="cox"),
    MKLSurvival(loss="rank"),
    DiscriminantMKLClassifier(solver="silp", alpha="learn", decision="centroid"),
    MKLOneClass(),
    MKLSurvival(),
    DiscriminantMKLClassifier(),
    LocalizedMKLClassifier(**BRIEF),
    LocalizedMKLRegressor(gating="gaussian", **BRIEF),
    LocalizedMKLOneClass(**(BRIEF | {"n_init": 2})),
    MKLRidgeCV(),
    BilinearMKLClassifier(tol=1e-2),
    PosteriorMKLClassifier(),
    BayesianMKLClassifier(tol=1e-3),
    LocalizedMKLClassifier(**(BRIEF | {"n_init": 2})),
    MKLClassifierCV(Cs=[1, 10], norms=["uniform"], cv=2),
    MKLRegressorCV(Cs=[1, 10], norms=["uniform"], cv=2),
    MKLRidgeClassifierCV(),
    PathSearchCV(DiscriminantMKLClassifier(weights="uniform"), Cs=[0.1, 1], cv=2),
    MKLClassifier(weights="uniform"),
    MKLClassifier(LINE_AND_BELL, normalize="centered", class_weight="balanced"),
    MKLClassifier(multi_class="joint"),
    MKLClassifier(multi_class="pairwise", weights="uniform"),
    MKLClassifier(**NYSTROEM),
    MKLRegressor(slack=2, norm=2),
    BilinearMKLClassifier(**NYSTROEM),
    PosteriorMKLClassifier(estimate="density", **NYSTROEM),
    DiscriminantMKLClassifier(LINE_AND_BELL, weights="uniform", normalize=None),
    DiscriminantMKLClassifier(**NYSTROEM),
    DiscriminantMKLClassifier([Gaussian("median"), Linear()], alpha="learn", **FOURIER),
    LocalizedMKLClassifier([Linear(), Linear()], gating="sigmoid", step="armijo", slack=2, **BRIEF),
    # A joint machine has no constants: for one class to prevail everywhere, as a check asks, some
    # kernel must hold one.
    LocalizedMKLClassifier([Linear(), Polynomial()], multi_class="joint", **BRIEF),
    LocalizedMKLClassifier(
        [Projected(Polynomial(), 1), Polynomial()], multi_class="pairwise", **BRIEF
    ),
    LocalizedMKLClassifier(**NYSTROEM, **BRIEF),
    LocalizedMKLRegressor([Gaussian("median"), Linear()], **FOURIER, **BRIEF),
    LocalizedMKLOneClass([Gaussian("median"), Linear()], **NYSTROEM, **BRIEF),
    MKLClassifierCV(Cs=[1], norms=[1], cv=2, multi_class="ovr-shared"),
    PathSearchCV(
        MKLSurvival(weights="uniform"), Cs=2, cv=StratifiedKFold(2, shuffle=True, random_state=0)
    ),
    PathSearchCV(
        LocalizedMKLClassifier([Linear(), Gaussian()], multi_class="ovr-shared", **BRIEF),
        Cs=[1],
        cv=2,
        scale=False,
    ),
]
#: The checks that settings can break: what is learned, with which numbers, of which samples. The
#: others look at the constructor, at tags, or at what is refused or converted before any setting is
#: read; or another check says the same: predictions one by one that equal those of all do not
#: depend on an order, and training on read-only memory, in single precision and from lists has
#: checks that also look at what was learned. Which attributes a fit may set is that of the class;
#: the order in memory has tests of its own, tests/estimators/test_memory_order.py.
OF_SETTINGS = {
    "check_class_weight_classifiers",
    "check_classifiers_classes",
    "check_classifiers_one_label",
    "check_classifiers_one_label_sample_weights",
    "check_classifiers_train(readonly_memmap=True,X_dtype=float32)",
    "check_decision_proba_consistency",
    "check_estimators_dtypes",
    "check_estimators_pickle(readonly_memmap=True)",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_subset_invariance",
    "check_non_transformer_estimators_n_iter",
    "check_outliers_fit_predict",
    "check_outliers_train(readonly_memmap=True)",
    "check_regressors_int",
    "check_regressors_train(readonly_memmap=True,X_dtype=float32)",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_sample_weights_not_overwritten",
    "check_transformer_general(readonly_memmap=True)",
    "check_transformer_n_iter",
    "check_transformer_preserve_dtypes",
}


#: With gates, each class has these once: class weights reach the machines, which have the check
#: without gates, in the same lines, and steps are counted in one place.
NOT_OF_GATES = {"check_class_weight_classifiers", "check_non_transformer_estimators_n_iter"}
#: The same checks in memory that may be written, of which each class has those in memory that may
#: not.
IMPLIED = {
    "check_classifiers_train",
    "check_estimators_pickle",
    "check_outliers_train",
    "check_regressors_train",
    "check_transformer_general",
}
#: What is read by lines that all classes share, or said by another check, too: `make campaign` has
#: them of every class, `make test` of those that read samples by lines of their own. Every format
#: of sparse samples becomes the same CSR, and the check of a class's tag fits it to one; weights in
#: every container become the same array; predictions one by one do not depend on an order; training
#: and pickling from memory that may not be written have checks of their own. Numbers that are none,
#: objects, lists and arrays of other kinds become the same array, or the same message, before any
#: setting is read, as do numbers of every type, which outlier detectors alone have no other check
#: for, and names of classes; a pipeline and one row are answered by the same lines.
OF_SHARED_LINES = {
    "check_classifier_data_not_an_array",
    "check_classifiers_classes",
    "check_dtype_object",
    "check_estimator_sparse_array",
    "check_estimators_dtypes",
    "check_estimators_nan_inf",
    "check_f_contiguous_array_estimator",
    "check_fit2d_predict1d",
    "check_fit_score_takes_y",
    "check_methods_sample_order_invariance",
    "check_n_features_in",
    "check_pipeline_consistency",
    "check_positive_only_tag_during_fit",
    "check_readonly_memmap_input",
    "check_regressor_data_not_an_array",
    "check_sample_weights_list",
    "check_sample_weights_not_an_array",
    "check_sample_weights_pandas_series",
    "check_sample_weights_shape",
    "check_supervised_y_2d",
    "check_transformer_data_not_an_array",
}
OWN_LINES = (MKLClassifier, MKLRidgeCV, MKLKernelPCA, PathSearchCV, SplitConformal, LFDA)
#: What each class has once, and its settings in `make campaign`: names of classes become numbers,
#: class weights weights of samples, and sparse samples CSR, before any setting is read; steps are
#: counted in one place; pickles hold what all fits set; and one feature or one sample, and
#: transformers, are met by the fit and the prediction of every class.
ONCE_A_CLASS = {
    "check_class_weight_classifiers",
    "check_classifiers_classes",
    "check_estimators_pickle(readonly_memmap=True)",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_non_transformer_estimators_n_iter",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_transformer_general(readonly_memmap=True)",
    "check_transformer_n_iter",
    "check_transformer_preserve_dtypes",
}
#: The same checks again, in double precision; each class has those in single, and the others above
#: in double.
IN_SINGLE = {
    "check_classifiers_train(readonly_memmap=True)",
    "check_regressors_train(readonly_memmap=True)",
}


def name_of(check: partial) -> str:
    given = ",".join(f"{name}={value}" for name, value in check.keywords.items())
    return check.func.__name__ + (f"({given})" if given else "")


def settings_can_break(estimator, name: str) -> bool:
    if hasattr(estimator, "gating") and name in NOT_OF_GATES:
        return False
    # Classifiers and regressors are trained in single precision by another check, and whole numbers
    # are converted.
    return name in OF_SETTINGS and (
        name != "check_estimators_dtypes" or is_outlier_detector(estimator)
    )


def applies(estimator, name: str) -> bool:
    if name in IMPLIED | IN_SINGLE:
        return False
    # Sparse arrays are every class's; matrices become the same CSR in one line, of which one is an
    # example.
    if name == "check_estimator_sparse_matrix" and type(estimator) is not MKLClassifier:
        return False
    # A class has one distinct sample there, too few for folds; weights have tests of their own
    # beside the calibration.
    if getattr(estimator, "calibration", None) and name.startswith(
        "check_sample_weight_equivalence"
    ):
        return False
    # A row of weight two is set aside as one, and of two equal rows each.
    if isinstance(estimator, SplitConformal) and name.startswith("check_sample_weight_equivalence"):
        return False
    # Leave-one-out leaves a sample of weight two out as one, and each of two equal samples alone.
    if hasattr(estimator, "criterion") and name.startswith("check_sample_weight_equivalence"):
        return False
    # A search hands weights on as metadata: by its signature the check takes it for an estimator
    # that refuses them.
    return not (
        isinstance(estimator, PathSearchCV) and name == "check_classifiers_one_label_sample_weights"
    )


def pairs() -> list:
    found = []
    groups = (
        (CLASSES, False, []),
        (SETTINGS, True, []),
        (MORE_SETTINGS, True, [pytest.mark.campaign]),
    )
    for estimators, further, own in groups:
        for estimator in estimators:
            shown, marks = "".join(repr(estimator).split()), list(own)
            if hasattr(getattr(estimator, "estimator", estimator), "gating"):
                marks.append(
                    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
                )
            if hasattr(estimator, "cv"):
                marks.append(
                    pytest.mark.filterwarnings("ignore:The least populated class:UserWarning")
                )
            for _, check in estimator_checks_generator(estimator):
                name = name_of(check)
                if (not further or settings_can_break(estimator, name)) and applies(
                    estimator, name
                ):
                    shared = name in OF_SHARED_LINES and type(estimator) not in OWN_LINES
                    shared &= name != "check_estimators_dtypes" or not is_outlier_detector(
                        estimator
                    )
                    # Every format of sparse samples is ten fits, and a search has five in each.
                    formats = name == "check_estimator_sparse_array" and isinstance(
                        estimator, PathSearchCV
                    )
                    repeated = further and name in ONCE_A_CLASS
                    later = [pytest.mark.campaign] if shared or formats or repeated else []
                    found.append(
                        pytest.param(estimator, check, id=f"{shown}-{name}", marks=marks + later)
                    )
    return found


def test_every_estimator_is_checked():
    public = set(kernelmosaic.estimators.__all__)
    assert {type(estimator).__name__ for estimator in CLASSES} == {
        *public,
        "LFDA",
        "PathSearchCV",
        "SplitConformal",
    }
    known = {
        name_of(check)
        for estimator in CLASSES
        for _, check in estimator_checks_generator(estimator)
    }
    assert known >= OF_SETTINGS | OF_SHARED_LINES | IN_SINGLE > NOT_OF_GATES | ONCE_A_CLASS, (
        "scikit-learn has renamed a check"
    )
    assert known >= IMPLIED | {f"{name}(readonly_memmap=True)" for name in IMPLIED}, (
        "scikit-learn has renamed a check"
    )


@pytest.mark.parametrize(("estimator", "check"), pairs())
def test_estimator(estimator, check):
    check(estimator)
