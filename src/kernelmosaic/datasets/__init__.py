"""Public sets, and toy problems whose truth is known: loaders, generators, the best possible rule for the mixtures."""

from __future__ import annotations

from kernelmosaic.datasets.entries import DataSet, catalogue, names, unavailable
from kernelmosaic.datasets.gaussians import BayesRule, bayes_decision, make_gaussians
from kernelmosaic.datasets.nucleotides import one_hot, windows
from kernelmosaic.datasets.pen import render_pen
from kernelmosaic.datasets.public import join_views, load
from kernelmosaic.datasets.ringnorm import make_ringnorm
from kernelmosaic.datasets.waveform import make_waveform

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
    "one_hot",
    "render_pen",
    "unavailable",
    "windows",
]
