"""The Tanimoto kernel of sets and counts, and the fingerprints of molecules that it compares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
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
#: Fraction of counts that are not zero up to which compressed rows are faster than dense ones.
#: Chosen by hand.
_MAX_DENSITY = 0.1
#: Columns from which dense counts are compressed; with fewer there is nothing to gain. Chosen by
#: hand.
_COMPRESSED_COLUMNS = 64
#: An odd factor that spreads numbers over 64 bits: 2⁶⁴ divided by the golden ratio.
_MIXER = np.uint64(0x9E3779B97F4A7C15)
#: The kinds of fingerprints, and whether they count their features (True) or mark them by one.
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
    """k(x, z) = Σ_j min(x_j, z_j) / Σ_j max(x_j, z_j), the fraction of shared counts.

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
        """Return checked samples, counts that are mostly zero in compressed rows."""
        X = super().validate(X)
        values = X.data if sparse.issparse(X) else X
        smallest = values.min(initial=0)
        if smallest < 0:
            raise ValueError(
                f"X holds {smallest:g}: Tanimoto compares counts or zeros and ones, which are not"
                " negative. Give the columns as they were counted, before any standardising."
            )
        if is_tensor(X) or sparse.issparse(X):
            return X
        if X.shape[1] < _COMPRESSED_COLUMNS or _is_binary(X):
            return X
        # Of compressed rows, only the columns that two samples share are visited.
        is_mostly_zero = np.count_nonzero(X) < _MAX_DENSITY * X.size
        return sparse.csr_matrix(X) if is_mostly_zero else X

    def _block(self, X: MatrixLike, Y: MatrixLike) -> Block:
        shared = shared_counts(X, Y)
        # Σ max(x, z) = Σ x + Σ z − Σ min(x, z)
        union = _row_sums(X)[:, None] + _row_sums(Y)
        union -= shared
        # Two samples of zeros have similarity one.
        is_empty = union == 0
        if is_empty.any():
            shared[is_empty] = 1
            union[is_empty] = 1
        shared /= union
        return shared

    def _diagonal(self, X: MatrixLike) -> Array:
        return np.ones(X.shape[0])


def _row_sums(X: MatrixLike) -> MatrixLike:
    """Return the sum of every row, as a vector."""
    total = X.sum(1)
    return total if is_tensor(total) else np.asarray(total).ravel()


def shared_counts(X: MatrixLike, Y: MatrixLike) -> Block:
    """Return Σ_j min(x_j, z_j) for all pairs of samples, as a new array in their precision."""
    backend = backend_of(X)
    dtype = np.result_type(backend.dtype(X), backend.dtype(Y))
    minima: Any
    if _is_binary(X) and (Y is X or _is_binary(Y)):
        # The minimum of zeros and ones is their product.
        left, right = X, Y
        if X.shape[1] < _EXACT and not is_tensor(X):
            # Whole numbers of this size are exact in single precision.
            left = X.astype(np.float32)
            right = Y.astype(np.float32)
        minima = pairwise_statistic("products", left, right)
    elif is_tensor(X) or X.shape[0] * Y.shape[0] <= TINY**2:
        # 2 min(x, z) = x + z − |x − z|
        minima = _row_sums(X)[:, None] + _row_sums(Y)
        minima -= pairwise_statistic("manhattan_distances", X, Y)
        minima *= 0.5
    else:
        minima = _compiled_minima(X, Y)
    converted: Block = backend.astype(minima, dtype)
    return converted


def _is_binary(X: MatrixLike) -> bool:
    """Whether all counts are zero or one."""
    values = X.data if sparse.issparse(X) else X
    return bool(((values == 0) | (values == 1)).all())


def _compiled_minima(X: MatrixLike, Y: MatrixLike) -> AnyArray:
    """Return Σ_j min(x_j, z_j) for all pairs of samples, by a compiled loop."""
    from kernelmosaic.kernels._numba_pairs import sparse_sums_of_minima, sums_of_minima

    is_symmetric = Y is X
    left = _compact(X)
    right = _compact(Y)
    dtype = np.result_type(left.dtype, right.dtype)
    if sparse.issparse(left) and sparse.issparse(right):
        rows = left.astype(dtype)
        columns = right.astype(dtype).tocsc()
        row_arrays = (rows.indptr.astype(np.int64), rows.indices, rows.data)
        column_arrays = (columns.indptr.astype(np.int64), columns.indices, columns.data)
        n_right = right.shape[0]
        return np.asarray(sparse_sums_of_minima(*row_arrays, *column_arrays, n_right, is_symmetric))
    if sparse.issparse(left):
        left = left.toarray()
    if sparse.issparse(right):
        right = right.toarray()
    left = np.ascontiguousarray(left, dtype=dtype)
    right = np.ascontiguousarray(right, dtype=dtype)
    return np.asarray(sums_of_minima(left, right, is_symmetric))


def _compact(X: MatrixLike) -> MatrixLike:
    """Return samples as the compiled loops read them.

    Sparse rows store no entry twice; whole numbers that single precision holds are converted to it.
    """
    if sparse.issparse(X):
        X = X.copy()
        X.sum_duplicates()
    values = X.data if sparse.issparse(X) else X
    is_exact = float(_row_sums(X).max()) < _EXACT and bool((values == np.rint(values)).all())
    return X.astype(np.float32) if is_exact else X


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
    tables = [_counts(kind, molecules, size) for kind in kinds]
    kernels = [(kind, Tanimoto(), slice(k * size, (k + 1) * size)) for k, kind in enumerate(kinds)]
    return sparse.csr_matrix(sparse.hstack(tables, format="csr")), kernels


def _molecules(smiles: Sequence[str]) -> list[Any]:
    """Return RDKit's molecules of SMILES texts; a ValueError names those it cannot parse."""
    try:
        from rdkit import Chem
    except ImportError as error:
        raise ImportError(
            'Fingerprints need rdkit: pip install "kernelmosaic[chemistry]"'
        ) from error
    texts = [str(text) for text in smiles]
    molecules = [Chem.MolFromSmiles(text) for text in texts]
    wrong = [i for i, molecule in enumerate(molecules) if molecule is None]
    if wrong:
        raise ValueError(
            f"smiles[{wrong[0]}]={texts[wrong[0]]!r} cannot be parsed by RDKit; fix or remove "
            f"{shorten([texts[i] for i in wrong])}."
        )
    return molecules


def _counts(kind: str, molecules: list[Any], size: int) -> MatrixLike:
    """Return one kind of fingerprint: a sparse row per molecule, with `size` columns.

    RDKit numbers features by up to 64 bits; a hash maps these numbers to columns.
    """
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
    # The counts of every molecule, by the number of the feature.
    counts: list[dict[int, int]]
    if kind == "maccs":
        keys = (rdMolDescriptors.GetMACCSKeysFingerprint(molecule) for molecule in molecules)
        counts = [dict.fromkeys(bits.GetOnBits(), 1) for bits in keys]
    else:
        generator = generators[kind]()
        prints = (generator.GetSparseCountFingerprint(molecule) for molecule in molecules)
        counts = [sparse_counts.GetNonzeroElements() for sparse_counts in prints]
    bounds = np.cumsum([0, *map(len, counts)])
    numbers = np.fromiter(chain.from_iterable(counts), np.uint64, bounds[-1])
    values_by_molecule = (molecule_counts.values() for molecule_counts in counts)
    values = np.fromiter(chain.from_iterable(values_by_molecule), np.float64, bounds[-1])
    if kind != "maccs":
        # The numbers of pairs and torsions are composed of bit fields, of which a remainder alone
        # would read the lowest only: they are mixed first.
        numbers = (numbers * _MIXER) >> np.uint64(32)
    columns = (numbers % np.uint64(size)).astype(np.int32)
    table = sparse.csr_matrix((values, columns, bounds.astype(np.int32)), (len(counts), size))
    table.sum_duplicates()
    is_counted = KINDS[kind]
    if not is_counted:
        table.data[:] = 1.0
    return table
