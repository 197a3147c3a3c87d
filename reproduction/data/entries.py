"""Which public sets there are, what is known about each, and what cannot be had."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from kernelmosaic._typing import Settings


@dataclass(frozen=True)
class DataSet:
    """Facts about one public set.

    Attributes
    ----------
    stem : str
        Name of its file, without ``.npz``.
    title : str
        Name in the papers.
    n_samples : int
    inputs : str
        Number of features, or the views and their sizes, or the length of the sequences.
    task : {"binary", "multiclass", "regression"}
    source, url : str
        The publisher, and the address of the data.
    licence : str
    sha256 : str
        Of the npz file.
    aliases : tuple of str
        Further names that `load` accepts.
    notes : str
        What matters before a figure is trusted.
    views : tuple of str
        Arrays of the file that are views of the same rows.
    label_names : mapping of str to str
        What a label stands for.
    digits : bool
        Whether the labels are digits, so that the tasks EO and SL exist.
    n_train : int or None
        The first rows, where the source publishes a split; the others are its test part.
    site : int or None
        Position in a sequence of what the label is about.
    bundled : str
        Name of the copy that scikit-learn carries.
    faces : bool
        Whether `sklearn.datasets.fetch_olivetti_faces` has it.
    openml_ids : tuple of int
        Numbers on OpenML, one per view.
    openml_target : str
        Column to take as the target, where it is not OpenML's own choice.
    openml_labels : mapping of str to int
        Our label for each of theirs, where `label_names` does not say.
    rows, order : str
        Digests of the content, whatever the order of the rows and in this order; see
        `public.row_digests`.
    """

    stem: str
    title: str
    n_samples: int
    inputs: str
    task: str
    source: str
    url: str
    licence: str
    sha256: str
    aliases: tuple[str, ...] = ()
    notes: str = ""
    views: tuple[str, ...] = ()
    label_names: Mapping[str, str] = field(default_factory=dict)
    digits: bool = False
    n_train: int | None = None
    site: int | None = None
    bundled: str = ""
    faces: bool = False
    openml_ids: tuple[int, ...] = ()
    openml_target: str = ""
    openml_labels: Mapping[str, int] = field(default_factory=dict)
    rows: str = ""
    order: str = ""

    @property
    def file_name(self) -> str:
        return f"{self.stem}.npz"

    @property
    def on_network(self) -> bool:
        """Whether `load` can fetch it."""
        return bool(self.openml_ids) or self.faces

    @property
    def how_to_get(self) -> str:
        """Where `load` finds it when no folder of files is given."""
        if self.bundled:
            return "scikit-learn"
        if self.faces:
            return "scikit-learn's download"
        return (
            f"OpenML {', '.join(map(str, self.openml_ids))}" if self.openml_ids else "a file only"
        )


@cache
def _catalogue() -> dict[str, DataSet]:
    text = files("reproduction.data").joinpath("catalogue.toml").read_text(encoding="utf-8")
    found = {}
    for stem, facts in tomllib.loads(text).items():
        fixed: Settings = {
            key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()
        }
        found[stem] = DataSet(stem=stem, **fixed)
    return found


def catalogue() -> tuple[DataSet, ...]:
    """Return what is known about each public set: name, size, task, source, licence.

    Examples
    --------
    >>> from reproduction.data import catalogue
    >>> [entry.title for entry in catalogue() if entry.task == "regression"]
    ['WHITEWINE', 'CONCRETE', 'MOTORCYCLE']
    """
    return tuple(_catalogue().values())


def names() -> list[str]:
    """Return the names `load` takes, in the catalogue's order; the papers' names and other
    spellings do as well.

    Examples
    --------
    >>> from reproduction.data import names
    >>> names()[:3]
    ['banana', 'german_numeric', 'heart']
    """
    return list(_catalogue())


def unavailable() -> dict[str, str]:
    """Return the sets of the papers of which no copy was found, each with the reason or a stand-in.

    Examples
    --------
    >>> from reproduction.data.entries import unavailable
    >>> sorted(unavailable())[:2]
    ['ACCEPTORS', 'ARABIDOPSIS']
    """
    return {
        "ARABIDOPSIS": "no public copy was found; human_tis is a stand-in of the same kind.",
        "VERTEBRATES": "no public copy was found; human_tis is a stand-in of the same kind.",
        "ACCEPTORS": (
            "no public copy was found; celegans_acceptor and splice are stand-ins of the same kind."
        ),
        "DONORS": "no public copy was found; splice is a stand-in of the same kind.",
        "POLYADENYLATION": "no public copy was found, nor anything of the same kind.",
        "PROTEIN LOCALISATION": (
            "the 69 kernels of plant, nonpl, psortPos and psortNeg were not found."
        ),
        "YEAST": "the kernels of its proteins with their MIPS classes were not found.",
    }


def _plain(name: str) -> str:
    """Case, blanks and punctuation do not distinguish names."""
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def find(name: str) -> DataSet:
    """Return the entry that answers to `name`, or raise naming the nearest ones."""
    if not isinstance(name, str):
        raise TypeError(
            f"name={name!r}: give the name of a set as a string; reproduction.data.names() lists"
            " them."
        )
    known = {
        _plain(text): one for one in catalogue() for text in (one.stem, one.title, *one.aliases)
    }
    if (entry := known.get(_plain(name))) is not None:
        return entry
    for title, reason in unavailable().items():
        if _plain(title) == _plain(name):
            raise ValueError(f"name={name!r} cannot be had: {reason}")
    near = dict.fromkeys(
        known[key].stem for key in difflib.get_close_matches(_plain(name), known, n=5, cutoff=0.6)
    )
    hint = f"near it: {', '.join(near)}" if near else f"give one of {', '.join(names())}"
    raise ValueError(f"name={name!r} is not a known set; {hint}.")
