"""Small tables for the command line's tests, and a way to run it that keeps what it says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from kernelmosaic.cli import main

QUICK = ("--C", "1", "--folds", "2")
#: A fit alone, for tests that look at no score.
PLAIN = ("--C", "1", "--folds", "0")


@dataclass(frozen=True)
class Said:
    """Exit code and output of one run."""

    code: int
    out: str
    err: str

    @property
    def error(self):
        """The one line of a refusal."""
        assert self.code == 2, (self.code, self.out, self.err)
        assert self.out == ""
        lines = self.err.splitlines()
        assert len(lines) == 1, lines
        assert "Traceback" not in self.err
        return lines[0]


def run(capsys, *arguments):
    """Run the command line in this process."""
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return Said(code, captured.out, captured.err)


def done(capsys, *arguments):
    """Run it and insist that it succeeds."""
    said = run(capsys, *arguments)
    assert said.code == 0, said.err
    return said


def flowers(n=60, seed=0):
    """Two classes by two views of numbers, with a category and a column nobody needs."""
    rng = np.random.RandomState(seed)
    label = rng.randint(2, size=n)
    shape = rng.randn(n, 2) + 2.0 * label[:, None]
    noise = rng.randn(n, 2)
    return pd.DataFrame(
        {
            "shape_a": shape[:, 0],
            "shape_b": shape[:, 1],
            "noise_a": noise[:, 0] * 100,
            "noise_b": noise[:, 1],
            "colour": np.where(label == 1, "red", "blue"),
            "kind": np.where(label == 1, "rose", "tulip"),
        }
    )


def curve(n=60, seed=0):
    """A regression in two numbers, targets in the thousands."""
    rng = np.random.RandomState(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    return pd.DataFrame({"u": X[:, 0], "v": X[:, 1], "y": 5000 + 1000 * (X[:, 0] ** 2 - X[:, 1])})


def strings(n=40, seed=0):
    """Sequences over four letters; those of one class hold a motif."""
    rng = np.random.RandomState(seed)
    texts = ["".join(rng.choice(list("ACGT"), 20)) for _ in range(n)]
    label = np.arange(n) % 2
    texts = [
        text[:8] + "GATTACA" + text[15:] if one else text
        for text, one in zip(texts, label, strict=True)
    ]
    return pd.DataFrame({"dna": texts, "motif": np.where(label, "yes", "no")})


def write_as(table, path):
    """Write a table of texts and numbers in the format of its name, by pandas and NumPy alone;
    return the path."""
    path = Path(path)
    if path.suffix == ".parquet":
        table.to_parquet(path)
    elif path.suffix == ".npz":
        np.savez(path, **{name: np.asarray(table[name].tolist()) for name in table})
    else:
        table.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    return path


def write(table, path):
    """Write a table as CSV and return the path."""
    table.to_csv(path, index=False)
    return path
