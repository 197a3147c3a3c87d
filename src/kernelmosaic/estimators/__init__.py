"""The scikit-learn face."""

from kernelmosaic.estimators.bayesian import BayesianMKLClassifier
from kernelmosaic.estimators.bayesian_localized import LocalizedBayesianMKLClassifier
from kernelmosaic.estimators.bilinear import BilinearMKLClassifier
from kernelmosaic.estimators.classifier import MKLClassifier
from kernelmosaic.estimators.cv import MKLClassifierCV, MKLRegressorCV, MKLSurvivalCV
from kernelmosaic.estimators.discriminant import DiscriminantMKLClassifier
from kernelmosaic.estimators.localized import LocalizedMKLClassifier, LocalizedMKLOneClass, LocalizedMKLRegressor
from kernelmosaic.estimators.one_class import MKLOneClass
from kernelmosaic.estimators.posterior import PosteriorMKLClassifier
from kernelmosaic.estimators.regressor import MKLRegressor
from kernelmosaic.estimators.ridge import MKLRidgeClassifierCV, MKLRidgeCV
from kernelmosaic.estimators.survival import MKLSurvival
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
