"""Fits as values: recipes and samples in, frozen fits out."""
