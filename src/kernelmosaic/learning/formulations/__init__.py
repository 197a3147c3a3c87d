"""The papers' other formulations of the same problems: conic programs, column generation, descent of first order."""
