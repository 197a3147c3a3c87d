"""Empty cells of several tables: parts of views are filled, views that a sample lacks stay
missing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.impute import SimpleImputer
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from kernelmosaic import MKLRidgeClassifierCV, stack_views
from kernelmosaic.imputing import ViewImputer

RNG = np.random.RandomState(0)
PATIENTS = [f"p{i}" for i in range(40)]
ILL = pd.Series(np.tile([0, 1], 20), index=PATIENTS)
RNA = pd.DataFrame(
    RNG.randn(40, 3) + 2 * ILL.to_numpy()[:, None], index=PATIENTS, columns=["g1", "g2", "g3"]
)
CLINIC = pd.DataFrame(
    {"age": RNG.randint(30, 80, 36).astype(float), "sex": ["f", "m"] * 18}, index=PATIENTS[:36]
)
RNA.loc[["p1", "p6"], "g2"] = np.nan
CLINIC.loc["p3", "sex"] = None
STACKED = stack_views(rna=RNA, clinic=CLINIC)


def test_parts_of_views_are_filled_and_whole_views_stay_missing():
    filled = ViewImputer().fit_transform(STACKED)
    assert filled.views == STACKED.views
    assert_allclose(filled.X.iloc[:, :3], SimpleImputer(strategy="median").fit_transform(RNA))
    assert filled.X.loc["p3", "clinic__sex"] == "f"  # 18 against 17
    assert filled.X.loc[PATIENTS[36:], STACKED.views["clinic"]].isna().all(axis=None)
    assert not filled.X.loc[PATIENTS[:36]].isna().any(axis=None)


def test_tables_are_filled_as_their_stack_is():
    imputer = ViewImputer().fit(STACKED)
    aligned = {"rna": RNA, "clinic": CLINIC.reindex(PATIENTS)}
    pd.testing.assert_frame_equal(imputer.transform(aligned).X, imputer.transform(STACKED).X)
    alone = imputer.transform({"rna": RNA})
    assert list(alone.views) == ["rna", "clinic"]
    assert alone.X[STACKED.views["clinic"]].isna().all(axis=None)
    arrays = stack_views(a=RNA.to_numpy(), b=np.ones((40, 1)))
    assert_array_equal(
        ViewImputer().fit_transform(arrays).X[:, :3], imputer.transform(STACKED).X.iloc[:, :3]
    )


def test_a_pipeline_fits_per_view_and_fills_each_fold_by_its_training_rows():
    y = ILL[STACKED.X.index]
    with pytest.raises(ValueError, match=r"contains NaN in 1 of 3 columns.*ViewImputer"):
        MKLRidgeClassifierCV().fit(STACKED, y)
    pipeline = make_pipeline(ViewImputer(), MKLRidgeClassifierCV()).fit(STACKED, y)
    assert {*pipeline[-1].view_weights_} == {"rna", "clinic"}
    by_hand = MKLRidgeClassifierCV().fit(ViewImputer().fit_transform(STACKED), y)
    assert_allclose(
        pipeline.decision_function(STACKED),
        by_hand.decision_function(ViewImputer().fit_transform(STACKED)),
    )
    folds = [(np.arange(20), np.arange(20, 40)), (np.arange(20, 40), np.arange(20))]
    scores = cross_val_score(pipeline, STACKED, y, cv=folds, error_score="raise")
    for score, (train, test) in zip(scores, folds, strict=True):
        imputer = ViewImputer().fit(STACKED.take(train))
        model = MKLRidgeClassifierCV().fit(imputer.transform(STACKED.take(train)), y.iloc[train])
        assert score == model.score(imputer.transform(STACKED.take(test)), y.iloc[test])


@pytest.mark.parametrize(
    "days",
    [pd.to_datetime(["2020-01-01", None, "2020-01-01"]), pd.to_timedelta(["1D", None, "1D"])],
)
def test_missing_dates_and_durations_are_filled(days):
    filled = ViewImputer().fit_transform(pd.DataFrame({"day": days}))
    assert list(filled["day"]) == [days[0]] * 3
