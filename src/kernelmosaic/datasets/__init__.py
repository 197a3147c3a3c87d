"""Public sets, and toy problems whose truth is known: loaders, generators, the best possible rule for the mixtures."""

from __future__ import annotations

from kernelmosaic.datasets.entries import DataSet, catalogue, names
from kernelmosaic.datasets.generators import BayesRule, bayes_decision, make_gaussians, make_ringnorm, make_waveform
from kernelmosaic.datasets.public import join_views, load

__all__ = [
    "BayesRule",
    "DataSet",
    "bayes_decision",
    "catalogue",
    "join_views",
    "load",
    "make_gaussians",
    "make_ringnorm",
    "make_waveform",
    "names",
]
