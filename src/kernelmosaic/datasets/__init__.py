"""Toy problems whose truth is known: generators, and the best possible rule for the Gaussian mixtures."""

from __future__ import annotations

from kernelmosaic.datasets.gaussians import BayesRule, bayes_decision, make_gaussians
from kernelmosaic.datasets.ringnorm import make_ringnorm
from kernelmosaic.datasets.waveform import make_waveform

__all__ = ["BayesRule", "bayes_decision", "make_gaussians", "make_ringnorm", "make_waveform"]
