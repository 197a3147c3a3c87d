"""Samples that are pairs, such as a drug with a protein: kernels of both members, and folds by what
is new.

In the order in which it is read: `kernels` multiplies a kernel of the left member by one of the
right, `stack` keeps the matrices of the members in place of one of all pairs, `ridge` solves least
squares by products with them, `splits` divides pairs by what is new in the test part.
"""
