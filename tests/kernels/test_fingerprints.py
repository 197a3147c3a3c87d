"""Fingerprints of molecules beside rdkit's own similarities, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmosaic.kernels import Tanimoto, fingerprints

SMILES = ["CCO", "CCN", "c1ccccc1O", "CC(=O)Oc1ccccc1C(=O)O", "C1CCCCC1", "N[C@@H](C)C(=O)O"]


def test_kernels_are_rdkits_similarities():
    pytest.importorskip("rdkit")
    from rdkit import Chem
    from rdkit.Chem import rdFingerprintGenerator as make
    from rdkit.DataStructs import TanimotoSimilarity

    X, kernels = fingerprints(SMILES, ["morgan2", "pairs", "morgan3"], size=2**20)
    counted = [make.GetMorganGenerator(radius=2), make.GetAtomPairGenerator()]
    for (_, kernel, columns), generator in zip(kernels, counted, strict=False):
        prints = [generator.GetSparseCountFingerprint(Chem.MolFromSmiles(one)) for one in SMILES]
        expected = [[TanimotoSimilarity(a, b) for b in prints] for a in prints]
        np.testing.assert_allclose(kernel(X[:, columns]), expected, atol=1e-12)
    bits = [
        make.GetMorganGenerator(radius=3).GetSparseFingerprint(Chem.MolFromSmiles(one))
        for one in SMILES
    ]
    expected = [[TanimotoSimilarity(a, b) for b in bits] for a in bits]
    np.testing.assert_allclose(kernels[2][1](X[:, kernels[2][2]]), expected, atol=1e-12)


def test_new_molecules_have_the_same_columns():
    pytest.importorskip("rdkit")
    from kernelmosaic import MKLRegressor

    X, kernels = fingerprints(SMILES)
    np.testing.assert_array_equal(fingerprints(SMILES[3:])[0].toarray(), X[3:].toarray())
    model = MKLRegressor(kernels).fit(X, np.arange(6.0))
    assert list(model.view_weights_) == [name for name, *_ in kernels]
    assert model.predict(fingerprints(["CCCO"])[0]).shape == (1,)
    with pytest.raises(ValueError, match=r"smiles\[1\]='no' cannot be parsed by RDKit"):
        fingerprints(["C", "no"])


def test_what_is_refused_without_rdkit():
    for kinds in ("morgan2", [], ["ecfp"]):
        with pytest.raises(ValueError, match="give a list of some of morgan1"):
            fingerprints(["C"], kinds)
    with pytest.raises(ValueError, match="size=3"):
        fingerprints(["C"], size=3)
    with pytest.raises(TypeError, match="give a list of molecules"):
        fingerprints("CCO")


def test_dense_counts_are_compared_as_sparse_ones():
    rng = np.random.default_rng(0)
    X = rng.poisson(0.02, size=(80, 300)).astype(float) * 3
    naive = np.minimum(X[:, None], X).sum(-1) / np.maximum(X[:, None], X).sum(-1)
    kernel = Tanimoto().fit(X)
    np.testing.assert_allclose(kernel(X), naive)
    assert hasattr(kernel.validate(X), "indptr")
    assert not hasattr(kernel.validate(np.maximum(X, 1)), "indptr")
    np.testing.assert_allclose(
        kernel(X, X + 1),
        np.minimum(X[:, None], X + 1).sum(-1) / np.maximum(X[:, None], X + 1).sum(-1),
    )
