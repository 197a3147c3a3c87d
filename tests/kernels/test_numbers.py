"""Parameters and corner cases of the other kernels on rows of numbers."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tests.reference import naive_kernels as naive

from kernelmosaic.kernels import FFT, Correlation, Gaussian, Laplacian, Linear, Polynomial

X = np.random.RandomState(6).normal(size=(8, 10))


@pytest.mark.parametrize(
    "parameters",
    [{"degree": d} for d in (0, -1, 1.5, 2.0, True, "2", None)]
    + [{"offset": o} for o in (-0.1, np.nan, np.inf, "1", None, True)],
)
def test_bad_polynomials_are_named(parameters):
    for use in (
        Polynomial(**parameters).fit,
        Polynomial(**parameters),
        Polynomial(**parameters).diag,
    ):
        with pytest.raises(ValueError, match=f"{next(iter(parameters))}="):
            use(X)


def test_polynomial_takes_numpy_integers_and_keeps_single_precision():
    K = Polynomial(degree=np.int64(3), offset=np.float64(0.5))(X.astype(np.float32))
    assert K.dtype == np.float32
    assert_allclose(K, (X @ X.T + 0.5) ** 3, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_numbers_whose_sum_overflows_are_samples_and_infinite_ones_that_cancel_are_not(dtype):
    # Quick looks at many samples add them up.
    largest = np.full((3, 2), np.finfo(dtype).max)
    assert_array_equal(Linear().validate(largest), largest)
    for bad in ([np.inf, -np.inf], [np.nan, 1.0]):
        with pytest.raises(ValueError, match=r"X contains (NaN|infinity)"):
            Linear().validate(np.array([bad, [0.0, 1.0]], dtype=dtype))
    assert (
        Linear().validate(np.ones((2, 2), dtype=np.dtype(dtype).newbyteorder(">"))).dtype.isnative
    )
    with pytest.raises(ValueError, match="0 sample"):
        Linear().validate(np.empty((0, 2), dtype=dtype))


def test_formulas_leave_the_statistic_alone():
    S = np.abs(X @ X.T)
    for kernel in (Linear(), Polynomial(degree=3), Gaussian(width=1.0), Laplacian(width=1.0)):
        before = S.copy()
        K = kernel.from_statistic(S)
        K *= 0
        assert_array_equal(S, before)


def test_correlation_equals_numpys():
    assert_allclose(Correlation()(X), np.corrcoef(X), atol=1e-14)


@pytest.mark.parametrize("value", [0.1, 0.0, 1e300, 1e-300, -7.3])
def test_constant_rows_correlate_with_nothing(value):
    A = np.vstack([X, np.full(10, value)])
    K = Correlation()(A)
    assert_array_equal(K[-1], np.zeros(9))
    assert_array_equal(K[:, -1], np.zeros(9))
    assert_array_equal(Correlation().diag(A), [1.0] * 8 + [0.0])


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_correlation_does_not_depend_on_the_scale(scale):
    assert_allclose(Correlation()(X * scale), np.corrcoef(X), atol=1e-12)


def test_correlation_needs_two_columns():
    with pytest.raises(ValueError, match=r"1 feature.*minimum of 2 is required by Correlation"):
        Correlation().fit(X[:, :1])


@pytest.mark.parametrize("n_frequencies", [0, -1, 7, 2.0, True, "3"])
def test_bad_numbers_of_frequencies_are_named(n_frequencies):
    for use in (FFT(n_frequencies=n_frequencies).fit, FFT(n_frequencies=n_frequencies)):
        with pytest.raises(ValueError, match=r"n_frequencies=.*from 1 to 6"):
            use(X)


def test_fft_forgets_where_a_pattern_stands():
    shifted = np.roll(X, 3, axis=1)
    assert_allclose(FFT(width=2.0)(X, shifted).diagonal(), 1.0, rtol=1e-12)
    assert np.all(Gaussian(width=2.0)(X, shifted).diagonal() < 0.9)


def test_fewer_frequencies_filter_out_fast_changes():
    fast = X + np.where(np.arange(10) % 2, 1.0, -1.0)
    assert_allclose(FFT(width=2.0, n_frequencies=5)(X, fast).diagonal(), 1.0, rtol=1e-12)
    assert np.all(FFT(width=2.0, n_frequencies=6)(X, fast).diagonal() < 0.9)


def test_fft_width_is_measured_between_magnitudes():
    spectra = [naive.magnitudes(x) for x in X.tolist()]
    assert_allclose(FFT().fit(X).gaussian_.width_, naive.median_width(spectra), rtol=1e-9)
    assert_allclose(
        FFT(width="nearest").fit(X).gaussian_.width_, naive.nearest_width(spectra), rtol=1e-9
    )
    with pytest.raises(ValueError, match="width='mean'"):
        FFT(width="mean").fit(X)
