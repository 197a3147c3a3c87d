"""What the study of molecules reads and computes by itself: sets of molecules, kernels, errors."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse


@pytest.fixture
def chemistry(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "studies"))
    for name in ("common", "chemistry"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import chemistry

    return chemistry


@pytest.fixture
def molecules(chemistry):
    """Counts of 24 molecules in every fingerprint, numbers in every set of descriptors."""
    rng = np.random.RandomState(0)
    kinds = {fingerprint for fingerprint, _ in chemistry.RIDGE_KERNELS.values()}
    prints = {
        kind: sparse.csr_array(rng.poisson(0.8, size=(24, 9)).astype(np.float32)) for kind in kinds
    }
    prints |= {kind: rng.standard_normal((24, 4)) for kind in chemistry.NUMBERS}
    return chemistry.Molecules(
        prints, rng.standard_normal(24), np.arange(24) < 20, np.arange(24) % 2 == 0
    )


def test_only_molecules_of_the_benchmark_are_read(chemistry, tmp_path):
    text = "smiles,endpoint,value,split,polaris\nC,HLM,0.5,train,train\nCC,HLM,1.5,train,\n"
    text += "CCC,Sol,2.5,,test\nC,Sol,3.5,train,train\n"
    (tmp_path / "adme.csv.gz").write_bytes(gzip.compress(text.encode()))
    found = chemistry.Collection.adme(str(tmp_path))
    assert found.targets() == ["Sol", "HLM"]
    assert found.molecules("Sol").y.tolist() == [2.5, 3.5]
    assert found.molecules("Sol").test.tolist() == [True, False]
    assert found.some(["HLM"]).smiles.tolist() == ["C"]


def test_kernels_compare_counts_bits_and_numbers(chemistry, molecules):
    found = chemistry.gram_matrices(molecules, chemistry.RIDGE_KERNELS, chemistry.Laplacian)
    assert list(found) == list(chemistry.RIDGE_KERNELS)
    x, z = molecules.prints["morgan2"].toarray()[[0, 22]]
    assert found["Morgan 2, counts"][0, 22] == pytest.approx(
        np.minimum(x, z).sum() / np.maximum(x, z).sum()
    )
    assert found["Morgan 2"][0, 22] == pytest.approx(
        np.sum((x > 0) & (z > 0)) / np.sum((x > 0) | (z > 0))
    )
    X = molecules.prints["properties"]
    X = np.sign(X) * np.log1p(np.abs(X))
    X = np.clip((X - X[:20].mean(axis=0)) / X[:20].std(axis=0), -5, 5)
    apart = np.abs(X[:, None] - X).sum(axis=2)
    width = np.median(apart[:20, :20][np.triu_indices(20, 1)])
    np.testing.assert_allclose(found["properties"], np.exp(-apart / width), rtol=1e-5)


def test_errors_are_of_test_molecules_all_and_on_cliffs(chemistry, molecules):
    off = np.array([1.0, 2.0, 3.0, 4.0])
    got = chemistry.rmse_of(molecules.y[20:] + off, molecules)
    np.testing.assert_allclose(got, [np.sqrt(30 / 4), np.sqrt((1 + 9) / 2)])


def test_every_method_of_least_squares_predicts_the_test_molecules(chemistry, molecules):
    for method in chemistry.WEIGHED:
        found = chemistry.run_ridge("unit", molecules, method)
        assert len(found["predicted"]) == 4
        assert np.sum(found["weights"]) == pytest.approx(1)
        assert len(found["weights"]) == len(
            chemistry.KERNELS if method == chemistry.FEW else chemistry.RIDGE_KERNELS
        )
