"""Checks of parameters: what they return, and what their errors name."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmosaic._checks import check_choice, check_count, check_positive


@pytest.mark.parametrize(
    ("value", "choices"), [("b", ("a", "b")), (None, (None, "a")), (3, {2: "two", 3: "three"})]
)
def test_a_choice_is_returned(value, choices):
    assert check_choice("rule", value, choices) is value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "sofmax",
            (
                r"gating='sofmax': choose one of 'softmax', 'sigmoid', or None; did you mean"
                r" 'softmax'\?"
            ),
        ),
        ("Sigmoid", r"did you mean 'sigmoid'\?"),
        ("x", r"gating='x': choose one of 'softmax', 'sigmoid', or None\."),
        (3, r"gating=3: choose"),
        ([], r"gating=\[\]: choose"),
        (np.ones(2), r"gating=array\(\[1\., 1\.\]\): choose"),
    ],
)
def test_any_other_value_is_refused_with_the_nearest_choice(value, message):
    with pytest.raises(ValueError, match=message):
        check_choice("gating", value, ("softmax", "sigmoid"), ", or None")


def test_counts():
    assert check_count("n", np.int64(2), least=2) == 2
    for value in (1, True, 2.0, "2"):
        with pytest.raises(ValueError, match=f"n={value!r}: give a whole number of at least 2"):
            check_count("n", value, least=2)


def test_positive_numbers_or_a_word():
    assert check_positive("alpha", 2, word="learn") == 2.0
    assert check_positive("alpha", "learn", word="learn") == "learn"
    with pytest.raises(
        ValueError, match="alpha='best': give a positive, finite number, or 'learn'"
    ):
        check_positive("alpha", "best", word="learn")
    with pytest.raises(TypeError, match="alpha='learn': give a positive, finite number"):
        check_positive("alpha", "learn")
