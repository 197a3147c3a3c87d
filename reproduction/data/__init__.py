"""Data of the papers: public sets with checksums, generators, bitmaps of pen traces, log-Gabor
views of images."""

from __future__ import annotations

from reproduction.data.entries import DataSet, catalogue, names
from reproduction.data.generators import make_ringnorm, make_waveform
from reproduction.data.public import load
from reproduction.data.textures import log_gabor

__all__ = ["DataSet", "catalogue", "load", "log_gabor", "make_ringnorm", "make_waveform", "names"]
