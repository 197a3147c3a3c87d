

def test_sparse_samples_with_indices_of_64_bits():
    dense = np.random.default_rng(0).normal(size=(6, 4)) * (np.arange(4) % 2)
    wide = sparse.csr_matrix(dense)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    assert_allclose(Laplacian(2.0)(wide), Laplacian(2.0)(dense))
