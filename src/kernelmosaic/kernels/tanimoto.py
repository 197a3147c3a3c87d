"""The Tanimoto kernel between sets and counts, and the fingerprints of molecules that it
compares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from kernelmosaic._checks import check_count
from kernelmosaic._typing import AnyArray, Array, MatrixLike
from kernelmosaic.backend import TINY, backend_of, is_tensor
from kernelmosaic.kernels.base import Block, Kernel, shorten
from kernelmosaic.kernels.distances import pairwise_statistic

#: Whole numbers up to this are exact in single precision, and so are sums that stay below it.
_EXACT = 2.0**24
#: Up to this share of counts that are not zero, compressed rows are faster than dense ones.
_FEW = 0.1
#: An odd number that spreads numbers over 64 bits: 2⁶⁴ over the golden ratio.
_MIXER = np.uint64(0x9E3779B97F4A7C15)
#: Fingerprints by name, and whether they are counted or only there or not.
KINDS = {
    "morgan1": True,
    "morgan2": True,
    "morgan3": False,
    "chiral2": True,
    "features2": True,
    "pairs": True,
    "torsions": True,
    "paths": False,
    "maccs": False,
}


class Tanimoto(Kernel):
    """k(x, z) = Σ_j min(x_j, z_j) / Σ_j max(x_j, z_j): the share of the counts that two samples
    have in common.

    For samples of zeros and ones that is ⟨x, z⟩ / (‖x‖² + ‖z‖² − ⟨x, z⟩), the size of the
    intersection of two sets over that of their union, also known as Jaccard's index. For counts, or
    other numbers that are not negative, it is the form of minima over maxima (Ruzicka's), in which
    a feature counts as often as both samples have it. Both are positive semi-definite. Two samples
    of zeros have k = 1; a sample of zeros and any other have k = 0.

    Samples may be dense or sparse; nothing is learned from them, and ``scale=True`` of the CV
    estimators leaves them as they are.

    References
    ----------
    Ralaivola, Swamidass, Saigo and Baldi (2005), "Graph kernels for chemical informatics".

    Examples
    --------
    >>> from kernelmosaic.kernels import Tanimoto
    >>> Tanimoto()([[1, 1, 0, 0]], [[1, 0, 1, 0], [3, 1, 0, 0]])
    array([[0.33333333, 0.5       ]])
    """

    accepts_sparse = True
    takes_tensors = True
    costs_by_entries = True
    keeps_scale = True

    def validate(self, X: MatrixLike) -> MatrixLike:
        X = super().validate(X)
        least = (X.data if sparse.issparse(X) else X).min(initial=0)
        if least < 0:
            raise ValueError(
                f"X holds {least:g}: Tanimoto compares counts or zeros and ones, which are not"
                " negative. Give the columns as they were counted, before any standardising."
            )
        if not is_tensor(X) and not sparse.issparse(X) and X.shape[1] >= 64 and not _is_binary(X):
            # Of counts that are mostly zero, only what two samples share is visited.
            few = np.count_nonzero(X) < _FEW * X.size
            X = sparse.csr_matrix(X) if few else X
        return X

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        shared = shared_counts(X, Y)
        union = _sums(X)[:, None] + _sums(Y)
        union -= shared
        # Two samples without anything are equal: both sums become one.
        empty = union == 0
        if empty.any():
            union[empty] = shared[empty] = 1
        shared /= union
        return shared

    def _diagonal(self, X: MatrixLike) -> Array:
        return np.ones(X.shape[0])


def _sums(X: MatrixLike) -> MatrixLike:
    total = X.sum(1)
    return total if is_tensor(total) else np.asarray(total).ravel()


def shared_counts(X: MatrixLike, Y: MatrixLike) -> Block:
    """Return Σ_j min(x_j, z_j) for all pairs, an array of its own in the precision of the
    samples."""
    backend = backend_of(X)
    precision = np.result_type(*(backend.dtype(one) for one in (X, Y)))
    if _is_binary(X) and (Y is X or _is_binary(Y)):
        # The minimum of zeros and ones is their product; whole numbers as small lose nothing in
        # single precision.
        exact = X.shape[1] < _EXACT and not is_tensor(X)
        left, right = (one.astype(np.float32) for one in (X, Y)) if exact else (X, Y)
        minima: Any = pairwise_statistic("products", left, right)
    elif is_tensor(X) or X.shape[0] * Y.shape[0] <= TINY**2:
        # |x − z| = x + z − 2 min(x, z).
        minima = _sums(X)[:, None] + _sums(Y)
        minima -= pairwise_statistic("manhattan_distances", X, Y)
        minima *= 0.5
    else:
        minima = _compiled_minima(X, Y)
    converted: Block = backend.astype(minima, precision)
    return converted


def _is_binary(X: MatrixLike) -> bool:
    values = X.data if sparse.issparse(X) else X
    return bool(((values == 0) | (values == 1)).all())


def _compiled_minima(X: MatrixLike, Y: MatrixLike) -> AnyArray:
    from kernelmosaic.kernels._numba_pairs import sparse_sums_of_minima, sums_of_minima

    same = Y is X
    left, right = (_compact(one) for one in (X, Y))
    kind = np.result_type(left.dtype, right.dtype)
    if sparse.issparse(left) and sparse.issparse(right):
        rows, columns = left.astype(kind), right.astype(kind).tocsc()
        a, b = ((one.indptr.astype(np.int64), one.indices, one.data) for one in (rows, columns))
        return np.asarray(sparse_sums_of_minima(*a, *b, right.shape[0], same))
    left, right = (
        np.ascontiguousarray(one.toarray() if sparse.issparse(one) else one, dtype=kind)
        for one in (left, right)
    )
    return np.asarray(sums_of_minima(left, right, same))


def _compact(X: MatrixLike) -> MatrixLike:
    """Return samples as the compiled loops read them: every number once, in single precision if
    that loses nothing."""
    if sparse.issparse(X):
        X = X.copy()
        X.sum_duplicates()
    values = X.data if sparse.issparse(X) else X
    whole = float(_sums(X).max()) < _EXACT and bool((values == np.rint(values)).all())
    return X.astype(np.float32) if whole else X


# Fingerprints of molecules ------------------------------------------------------------------------


def fingerprints(
    smiles: Sequence[str],
    kinds: Sequence[str] = (
        "morgan2",
        "morgan3",
        "features2",
        "pairs",
        "torsions",
        "paths",
        "maccs",
    ),
    *,
    size: int = 2**16,
) -> tuple[Any, list[tuple[str, Tanimoto, slice]]]:
    """Return fingerprints of molecules, and a Tanimoto kernel on each kind of them.

    The columns of a molecule depend on that molecule only: for new molecules, make the same call.
    It needs rdkit: ``pip install "kernelmosaic[chemistry]"``.

    Parameters
    ----------
    smiles : sequence of str
        The molecules.
    kinds : sequence of str
        Which fingerprints, by default ``("morgan2", "morgan3", "features2", "pairs", "torsions",
        "paths", "maccs")``: Morgan's of radius 1, 2 or 3 (``"morgan3"`` as bits), ``"chiral2"``
        with chirality, ``"features2"`` of pharmacophoric features, ``"pairs"`` of atoms,
        ``"torsions"``, ``"paths"`` of up to five bonds (bits) and the ``"maccs"`` keys (bits).
    size : int, default=2**16
        Columns of each kind, to which RDKit's numbers are hashed; large enough that features rarely
        collide.

    Returns
    -------
    X : csr_matrix of shape (len(smiles), columns)
        Counts, or ones.
    kernels : list of (name, Tanimoto, columns)
        What an estimator takes as its `kernels`.

    See Also
    --------
    Tanimoto : The kernel.

    Examples
    --------
    >>> from kernelmosaic.kernels import fingerprints
    >>> X, kernels = fingerprints(["CCO", "CCN"], ["morgan2", "maccs"])  # doctest: +SKIP
    >>> [name for name, *_ in kernels]  # doctest: +SKIP
    ['morgan2', 'maccs']
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if isinstance(kinds, str) or unknown or not len(kinds):
        raise ValueError(f"kinds={kinds!r}: give a list of some of {', '.join(KINDS)}.")
    check_count("size", size, least=256)
    if isinstance(smiles, str):
        raise TypeError(f"smiles={smiles!r}: give a list of molecules, [{smiles!r}].")
    molecules = _molecules(smiles)
    found = [_counts(kind, molecules, size) for kind in kinds]
    kernels = [(kind, Tanimoto(), slice(k * size, (k + 1) * size)) for k, kind in enumerate(kinds)]
    return sparse.csr_matrix(sparse.hstack(found, format="csr")), kernels


def _molecules(smiles: Sequence[str]) -> list[Any]:
    try:
        from rdkit import Chem
    except ImportError as error:
        raise ImportError(
            'Fingerprints need rdkit: pip install "kernelmosaic[chemistry]"'
        ) from error
    texts = [str(one) for one in smiles]
    molecules = [Chem.MolFromSmiles(one) for one in texts]
    wrong = [i for i, one in enumerate(molecules) if one is None]
    if wrong:
        raise ValueError(
            f"smiles[{wrong[0]}]={texts[wrong[0]]!r} cannot be parsed by RDKit; fix or remove "
            f"{shorten([texts[i] for i in wrong])}."
        )
    return molecules


def _counts(kind: str, molecules: list[Any], size: int) -> MatrixLike:
    """Return one kind of fingerprint, a row per molecule, columns folded to so many."""
    from rdkit.Chem import rdFingerprintGenerator as make
    from rdkit.Chem import rdMolDescriptors

    generators: dict[str, Callable[[], Any]] = {
        "morgan1": lambda: make.GetMorganGenerator(radius=1),
        "morgan2": lambda: make.GetMorganGenerator(radius=2),
        "morgan3": lambda: make.GetMorganGenerator(radius=3),
        "chiral2": lambda: make.GetMorganGenerator(radius=2, includeChirality=True),
        "features2": lambda: make.GetMorganGenerator(
            radius=2, atomInvariantsGenerator=make.GetMorganFeatureAtomInvGen()
        ),
        "pairs": make.GetAtomPairGenerator,
        "torsions": lambda: make.GetTopologicalTorsionGenerator(includeChirality=True),
        "paths": lambda: make.GetRDKitFPGenerator(maxPath=5),
    }
    if kind == "maccs":
        each = [
            dict.fromkeys(rdMolDescriptors.GetMACCSKeysFingerprint(one).GetOnBits(), 1)
            for one in molecules
        ]
    else:
        generator = generators[kind]()
        each = [generator.GetSparseCountFingerprint(one).GetNonzeroElements() for one in molecules]
    ends = np.cumsum([0, *map(len, each)])
    numbers = np.fromiter((column for one in each for column in one), np.uint64, ends[-1])
    # Numbers of pairs and torsions are made of parts, which a remainder alone would cut off: they
    # are mixed before.
    mixed = numbers if kind == "maccs" else (numbers * _MIXER) >> np.uint64(32)
    columns = (mixed % np.uint64(size)).astype(np.int32)
    values = np.fromiter((value for one in each for value in one.values()), np.float64, ends[-1])
    table = sparse.csr_matrix((values, columns, ends.astype(np.int32)), (len(each), size))
    table.sum_duplicates()
    if not KINDS[kind]:
        table.data[:] = 1.0
    return table
