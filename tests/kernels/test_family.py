"""Many kernels in one line, and the names they get."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

from kernelmosaic.kernels import (
    Gaussian,
    Kernel,
    Linear,
    PerColumn,
    Polynomial,
    Precomputed,
    family,
    per_column,
)
from kernelmosaic.kernels.views import name_kernels


def test_one_kernel_a_combination():
    pattern = Polynomial()
    kernels = family(pattern, degree=[1, 3], offset=(0.0, 2.0))
    assert [(k.degree, k.offset) for k in kernels] == [(1, 0.0), (1, 2.0), (3, 0.0), (3, 2.0)]
    assert len({id(k) for k in [pattern, *kernels]}) == 5
    assert (pattern.degree, pattern.offset) == (2, 1.0)


def test_values_from_arrays_ranges_and_nested_parameters():
    assert (
        repr(family(Gaussian(), width=np.array([0.5, 2.0])))
        == "[Gaussian(width=0.5), Gaussian(width=2.0)]"
    )
    assert [k.degree for k in family(Polynomial(), degree=range(1, 4))] == [1, 2, 3]
    assert [k.degree for k in family(Polynomial(), degree=(d for d in (2, 4)))] == [2, 4]
    sums = family(Linear() + 2.0 * Gaussian(), right__kernel__width=[1.0, 2.0])
    assert [repr(k) for k in sums] == [f"Linear() + 2.0 * Gaussian(width={w})" for w in (1.0, 2.0)]
    assert [k.width for k in family(Gaussian(), width=["nearest", "median", 1])] == [
        "nearest",
        "median",
        1,
    ]
    assert repr(family(Gaussian(width=3.0))) == "[Gaussian(width=3.0)]"


def test_a_stack_of_matrices_is_a_family_without_copies():
    stack = np.array([np.eye(4), 2 * np.eye(4)])
    kernels = family(Precomputed(stack[0]), K=stack)
    assert all(np.shares_memory(k.K, stack) for k in kernels)
    assert_array_equal(kernels[1]([1, 2]), 2 * np.eye(2))


@pytest.mark.parametrize(
    ("grids", "error", "message"),
    [
        (
            {"breadth": [1.0]},
            ValueError,
            r"breadth: Gaussian\(\) has no such parameter; it has factor, per_column, width",
        ),
        ({"width": []}, ValueError, r"width=\[\].*at least one"),
        ({"width": 1.0}, TypeError, r"width=1\.0: give a list"),
        ({"width": "nearest"}, TypeError, r"width='nearest': give a list.*width=\['nearest'\]"),
    ],
)
def test_bad_grids_are_named(grids, error, message):
    with pytest.raises(error, match=message):
        family(Gaussian(), **grids)


def test_parameters_of_a_kernel_without_any():
    with pytest.raises(ValueError, match=r"width: Linear\(\) has no such parameter; it has none"):
        family(Linear(), width=[1])


@pytest.mark.parametrize(
    "build", [family, per_column, lambda kernel: PerColumn(kernel).expand([0])]
)
@pytest.mark.parametrize("kernel", ["gaussian", None, Gaussian, [Linear()]])
def test_only_kernels_make_families(build, kernel):
    with pytest.raises(TypeError, match="kernel="):
        build(kernel)


def test_per_column_expands_to_clones():
    each = per_column(Gaussian(width=2.0))
    assert isinstance(each, PerColumn)
    assert not isinstance(each, Kernel)
    kernels = each.expand([4, 1, 7])
    assert repr(kernels) == repr([Gaussian(width=2.0)] * 3)
    assert len({id(k) for k in [each.kernel, *kernels]}) == 4
    assert each.expand([]) == []
    assert repr(clone(each)) == "PerColumn(kernel=Gaussian(width=2.0))"
    assert each.set_params(kernel__width=5.0).expand([0])[0].width == 5.0


class Odd__Kernel_(Linear):
    """A class whose name would break nested parameters."""

    def __init__(self, odd__parameter=1):
        self.odd__parameter = odd__parameter


@pytest.mark.parametrize(
    ("kernels", "names"),
    [
        ([], []),
        ([Linear(), Polynomial(), Gaussian()], ["linear", "polynomial", "gaussian"]),
        (
            [Gaussian(0.1), Linear(), Gaussian(10)],
            ["gaussian(width=0.1)", "linear", "gaussian(width=10)"],
        ),
        ([Gaussian(), Gaussian(np.float64(2))], ["gaussian(width=median)", "gaussian(width=2.0)"]),
        (family(Gaussian(), factor=[1, 0.5]), ["gaussian(factor=1)", "gaussian(factor=0.5)"]),
        ([Polynomial(2), Polynomial(3)], ["polynomial(degree=2)", "polynomial(degree=3)"]),
        (
            family(Polynomial(), degree=[1, 2], offset=[0.0, 1.0])[:3],
            [f"polynomial(degree={d}, offset={o})" for d, o in ((1, 0.0), (1, 1.0), (2, 0.0))],
        ),
        ([Linear(), Linear(), Linear()], ["linear-1", "linear-2", "linear-3"]),
        (
            [Gaussian(1.0), Gaussian(2.0), Gaussian(1.0)],
            ["gaussian(width=1.0)-1", "gaussian(width=2.0)", "gaussian(width=1.0)-2"],
        ),
        (
            [Precomputed(np.eye(2)), Precomputed(np.ones((2, 2)))],
            ["precomputed-1", "precomputed-2"],
        ),
        (
            [2.0 * Linear(), 2.0 * Gaussian(), 3.0 * Linear()],
            [
                f"scaled(factor={f}, kernel={k})"
                for f, k in ((2.0, "Linear()"), (2.0, "Gaussian()"), (3.0, "Linear()"))
            ],
        ),
        ([Odd__Kernel_()], ["odd_kernel"]),
        (
            [Odd__Kernel_(1), Odd__Kernel_("a__b")],
            ["odd_kernel_(odd_parameter=1)", "odd_kernel_(odd_parameter=a_b)"],
        ),
    ],
)
def test_names(kernels, names):
    assert name_kernels(kernels) == names
    assert len(set(names)) == len(kernels)
    assert not any("__" in name or name.endswith("_") or not name for name in names)


def test_numbered_names_step_over_those_in_use():
    numbered = type("Linear-1", (Linear,), {})  # a class that has the name another would get
    assert name_kernels([numbered(), Linear(), Linear()]) == ["linear-1", "linear-2", "linear-3"]
