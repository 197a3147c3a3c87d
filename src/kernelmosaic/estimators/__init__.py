"""The scikit-learn face."""

from kernelmosaic.estimators.bayesian import BayesianMKLClassifier
from kernelmosaic.estimators.bayesian_localized import LocalizedBayesianMKLClassifier
from kernelmosaic.estimators.classifier import BilinearMKLClassifier, MKLClassifier
from kernelmosaic.estimators.cv import MKLClassifierCV, MKLRegressorCV, MKLSurvivalCV
from kernelmosaic.estimators.discriminant import DiscriminantMKLClassifier
from kernelmosaic.estimators.localized import LocalizedMKLClassifier, LocalizedMKLOneClass, LocalizedMKLRegressor
from kernelmosaic.estimators.posterior import PosteriorMKLClassifier
from kernelmosaic.estimators.regressor import MKLOneClass, MKLRegressor, MKLSurvival
from kernelmosaic.estimators.ridge import MKLRidgeClassifierCV, MKLRidgeCV
from kernelmosaic.estimators.unlabelled import MKLClustering, MKLKernelPCA

__all__ = [
    "BayesianMKLClassifier",
    "BilinearMKLClassifier",
    "DiscriminantMKLClassifier",
    "LocalizedBayesianMKLClassifier",
    "LocalizedMKLClassifier",
    "LocalizedMKLOneClass",
    "LocalizedMKLRegressor",
    "MKLClassifier",
    "MKLClassifierCV",
    "MKLClustering",
    "MKLKernelPCA",
    "MKLOneClass",
    "MKLRegressor",
    "MKLRegressorCV",
    "MKLRidgeCV",
    "MKLRidgeClassifierCV",
    "MKLSurvival",
    "MKLSurvivalCV",
    "PosteriorMKLClassifier",
]
