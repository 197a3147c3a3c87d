"""From the SMILES of molecules to kernels: sparse fingerprints side by side, and a Tanimoto kernel on each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from kernelmosaic._typing import MatrixLike
from kernelmosaic.kernels.base import is_whole, shorten
from kernelmosaic.kernels.tanimoto import Tanimoto

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


def fingerprints(
    smiles: Sequence[str],
    kinds: Sequence[str] = ("morgan2", "morgan3", "features2", "pairs", "torsions", "paths", "maccs"),
    *,
    size: int = 2**16,
) -> tuple[Any, list[tuple[str, Tanimoto, slice]]]:
    """Return fingerprints of molecules, and a Tanimoto kernel on each kind of them.

    The columns of a molecule depend on nothing but itself: those of new molecules are found by the same call. It needs
    rdkit: ``pip install "kernelmosaic[chemistry]"``.

    Parameters
    ----------
    smiles : sequence of str
        The molecules.
    kinds : sequence of str, default=("morgan2", "morgan3", "features2", "pairs", "torsions", "paths", "maccs")
        Which fingerprints: Morgan's of radius 1, 2 or 3 (``"morgan3"`` as bits), ``"chiral2"`` with chirality,
        ``"features2"`` of pharmacophoric features, ``"pairs"`` of atoms, ``"torsions"``, ``"paths"`` of up to five
        bonds (bits) and the ``"maccs"`` keys (bits).
    size : int, default=2**16
        Columns of each kind, to which rdkit's numbers are hashed; so many that features rarely collide.

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
    if not is_whole(size, 256):
        raise ValueError(f"size={size!r}: give a whole number of at least 256.")
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
        raise ImportError('Fingerprints need rdkit: pip install "kernelmosaic[chemistry]"') from error
    texts = [str(one) for one in smiles]
    molecules = [Chem.MolFromSmiles(one) for one in texts]
    wrong = [i for i, one in enumerate(molecules) if one is None]
    if wrong:
        raise ValueError(
            f"smiles[{wrong[0]}]={texts[wrong[0]]!r} is no molecule that rdkit reads; mend or leave out "
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
        each = [dict.fromkeys(rdMolDescriptors.GetMACCSKeysFingerprint(one).GetOnBits(), 1) for one in molecules]
    else:
        generator = generators[kind]()
        each = [generator.GetSparseCountFingerprint(one).GetNonzeroElements() for one in molecules]
    ends = np.cumsum([0, *map(len, each)])
    numbers = np.fromiter((column for one in each for column in one), np.uint64, ends[-1])
    # Numbers of pairs and torsions are made of parts, which a remainder alone would cut off: they are mixed before.
    mixed = numbers if kind == "maccs" else (numbers * _MIXER) >> np.uint64(32)
    columns = (mixed % np.uint64(size)).astype(np.int32)
    values = np.fromiter((value for one in each for value in one.values()), np.float64, ends[-1])
    table = sparse.csr_matrix((values, columns, ends.astype(np.int32)), (len(each), size))
    table.sum_duplicates()
    if not KINDS[kind]:
        table.data[:] = 1.0
    return table
