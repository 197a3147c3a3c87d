"""Samples that are pairs, such as a drug with a protein: kernels, matrices, ridge and folds.

In the order in which it is read: `kernels` multiplies a kernel of the left member by one of the
right, `stack` keeps the matrices of the members in place of one of all pairs, `ridge` solves least
squares by products with them, `splits` divides pairs by what is new in the test part.

Words:

- member: one of the two objects of a pair, the left or the right one; many pairs have it in common;
- side: all left members, or all right ones;
- codes: for every pair, the number of its member on one side;
- pairs of one kind: pairs whose two members come from one list, such as two proteins;
- mode: how the kernels of both sides make one of pairs (`MODES`, `TERMS`);
- plan: the terms A ⊗ B of a combined kernel, after terms with a matrix in common are added;
- table: coefficients of pairs, left members by right members.
"""
