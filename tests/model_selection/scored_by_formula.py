"""A classifier that learns nothing: its score is a formula in log10 of its parameters."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin


class ScoredByFormula(ClassifierMixin, BaseEstimator):
    """Scores −formula(log10 of p1 … p5); every call of `fit` is counted, and fails where `fails`
    says so."""

    log: list = []  # noqa: RUF012 — shared on purpose: searches clone the estimator

    def __init__(self, formula=None, fails=None, p1=1.0, p2=1.0, p3=1.0, p4=1.0, p5=1.0):
        self.formula = formula
        self.fails = fails
        self.p1 = p1
        self.p2 = p2
        self.p3 = p3
        self.p4 = p4
        self.p5 = p5

    @property
    def z(self):
        return np.log10([self.p1, self.p2, self.p3, self.p4, self.p5])

    def fit(self, X, y):
        type(self).log.append(tuple(np.round(self.z, 12)))
        if self.fails is not None and self.fails(self.z):
            raise RuntimeError("no solution here")
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])

    def score(self, X, y):
        return -float(self.formula(self.z))
