"""Single cells: gene sets of an AnnData or MuData as kernels, and a model's predictions written
back into it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.utils import _safe_indexing

from kernelmosaic._typing import Estimator, Indices, MatrixLike
from kernelmosaic.backend import row_strips
from kernelmosaic.engine.pipelines import behind_pipeline
from kernelmosaic.kernels.base import Kernel, shorten
from kernelmosaic.kernels.views import by_group, read_gmt
from kernelmosaic.stacking import SEPARATOR, SparseTable, row_names

__all__ = ["to_anndata", "views_from_anndata"]


def views_from_anndata(
    data: Any,
    gene_sets: Mapping[str, Any] | str | PathLike[str],
    *,
    kernel: Kernel | Sequence[Kernel] | None = None,
    layer: str | Mapping[str, str] | None = None,
    use_raw: bool = False,
    modality: str | Sequence[str] | None = None,
    min_size: int = 5,
    genes: Any = None,
) -> tuple[MatrixLike, list[tuple[str, Kernel, Any]]]:
    """Return the cells of an AnnData or MuData as samples, and one kernel for every gene set.

    Parameters
    ----------
    data : AnnData or MuData
        Cells as rows. A matrix that stays in its file (``backed="r"``) is read in blocks, of which
        the genes of the sets are kept.
    gene_sets : mapping, str or path-like
        From the name of a set to its genes, or a ``.gmt`` file. Of a MuData also from the name of a
        modality to the sets of its own variables, such as peaks.
    kernel : Kernel or list of Kernel, default=None
        Kernel of each set, as in :func:`~kernelmosaic.kernels.by_group`; None means ``Gaussian()``.
    layer : str, or dict from modality to str, default=None
        The layer to read; None reads ``X``.
    use_raw : bool, default=False
        Whether to read ``raw.X`` and its genes.
    modality : str or list of str, default=None
        Of a MuData, the modality or modalities to read; None reads all. One that is named alone is
        read as an AnnData.
    min_size : int, default=5
        Sets with fewer genes among those measured are left out.
    genes : sequence of str, default=None
        The columns that X is to have, in this order: for new cells ``model.feature_names_in_``.
        None takes the genes of all sets.

    Returns
    -------
    X : SparseTable or DataFrame of shape (n_cells, n_genes)
        Sparse where the data are; with the names of cells and genes. Those of several modalities
        are named ``modality__gene``. A cell that lacks a modality has NaN there, of sparse data in
        one of its columns, which estimators take for a missing view.
    kernels : list of (name, kernel, columns)
        One for every set, or for every set and kernel; of several modalities named ``modality:
        set``.

    See Also
    --------
    to_anndata : Writes the results of a fitted model into an AnnData.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> import numpy as np, pandas as pd
    >>> from kernelmosaic import MKLClassifier
    >>> from kernelmosaic.single_cell import views_from_anndata
    >>> rng = np.random.RandomState(0)
    >>> genes = pd.Index(["CD4", "CD8A", "MKI67", "TOP2A"])
    >>> # Stands for an AnnData, such as anndata.read_h5ad returns.
    >>> cells = pd.RangeIndex(20)
    >>> adata = SimpleNamespace(X=rng.rand(20, 4), obs_names=cells, var_names=genes)
    >>> sets = {"immune": ["CD4", "CD8A", "CD19"], "cycle": ["MKI67", "TOP2A"]}
    >>> X, kernels = views_from_anndata(adata, sets, min_size=2)
    >>> kernels
    [('immune', Gaussian(), ['CD4', 'CD8A']), ('cycle', Gaussian(), ['MKI67', 'TOP2A'])]
    >>> MKLClassifier(kernels).fit(X, adata.X[:, 2] > 0.5).weights_.argmax()
    np.int64(1)
    """
    sets: Any = read_gmt(gene_sets) if isinstance(gene_sets, str | PathLike) else gene_sets
    if not isinstance(sets, Mapping) or not sets:
        raise TypeError(
            f"gene_sets={gene_sets!r}: give a dict from the name of a set to its genes, or a .gmt"
            " file's path."
        )
    parts = _parts(data, modality, layer, use_raw)
    nested = all(isinstance(one, Mapping) for one in sets.values())
    kernels: list[tuple[str, Kernel, Any]] = []
    columns: list[Indices] = []
    for part in parts:
        if nested and part.name not in sets:
            raise ValueError(
                f"gene_sets: there are none for the modality {part.name!r}, only for"
                f" {', '.join(sets)}; name the modalities to read, such as modality=[...]."
            )
        own = part.kernels(sets[part.name] if nested else sets, kernel, min_size)
        kernels += own
        read = {gene for _, _, listed in own for gene in listed}
        every = [part.prefix + name for name in part.columns]
        columns.append(
            part.places(
                [one for one in every if one in read] if genes is None else list(map(str, genes))
            )
        )
    return _side_by_side(data, parts, columns), kernels


def to_anndata(
    model: Estimator,
    data: Any,
    key: str = "mkl",
    *,
    X: MatrixLike = None,
    layer: str | Mapping[str, str] | None = None,
    use_raw: bool = False,
    modality: str | Sequence[str] | None = None,
) -> Any:
    """Write the results of a fitted model for the cells into an AnnData or MuData; an ``.h5ad``
    file can store them.

    Parameters
    ----------
    model : estimator
        Fitted to what `views_from_anndata` returned.
    data : AnnData or MuData
        The cells; changed. A backed one keeps its matrix.
    key : str, default="mkl"
        Prefix of all names that are written.
    X : SparseTable or DataFrame, optional
        The cells as `views_from_anndata` returned them. By default they are read again, by the
        genes of the model. If X names its rows they are the cells of these names, in any order;
        else they are the cells in the order of `data`.
    layer, use_raw, modality
        Where to read them, as in :func:`views_from_anndata`.

    Returns
    -------
    AnnData or MuData
        The same object, with

        - ``obs[key]``: the predictions;
        - ``obsm[key + "_probabilities"]``: a frame of cells and classes, if the model has
          probabilities;
        - ``obsm[key + "_contributions"]``: a frame of cells and kernels, the share of each kernel
          in the decision; of several classes in that for the predicted one;
        - ``uns[key]["weights"]``: a frame of classes and kernels; with one row if all classes have
          the same weights.

        In the names of columns ``/`` becomes ``|``: HDF5 takes a slash for a folder.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> import numpy as np, pandas as pd
    >>> from kernelmosaic import MKLClassifier
    >>> from kernelmosaic.single_cell import to_anndata, views_from_anndata
    >>> rng = np.random.RandomState(0)
    >>> genes = pd.Index(["CD4", "CD8A", "MKI67", "TOP2A"])
    >>> # Stands for an AnnData, such as anndata.read_h5ad returns.
    >>> adata = SimpleNamespace(X=rng.rand(20, 4), var_names=genes, obsm={}, uns={})
    >>> adata.obs = pd.DataFrame(index=[f"cell{i}" for i in range(20)])
    >>> adata.obs_names = adata.obs.index
    >>> sets = {"immune": genes[:2], "cycle": genes[2:]}
    >>> X, kernels = views_from_anndata(adata, sets, min_size=2)
    >>> model = MKLClassifier(kernels).fit(X, adata.X[:, 2] > 0.5)
    >>> to_anndata(model, adata).uns["mkl"]["weights"].columns.tolist()
    ['immune', 'cycle']
    """
    import pandas as pd

    if X is None:
        names = [str(name) for name in getattr(model, "feature_names_in_", ())]
        if not names:
            raise ValueError(
                "model: it was fitted to columns without names, and genes are found by name; give"
                " X, as views_from_anndata returns it."
            )
        parts = _parts(data, modality, layer, use_raw)
        X = _side_by_side(data, parts, [part.places(names) for part in parts])
    if X.shape[0] != len(data.obs_names):
        raise ValueError(
            f"X has {X.shape[0]} rows, and data has {len(data.obs_names)} cells: give one row per"
            " cell."
        )
    X = _in_order_of_cells(X, data.obs_names)
    predicted = np.asarray(model.predict(X))
    classes = model.classes_ if is_classifier(model) else None
    # Of a pipeline or a search, the estimator with the kernels.
    inner, read = behind_pipeline(model, X)

    def frame(values: Any, names: Sequence[Any], index: Any = data.obs_names) -> Any:
        return pd.DataFrame(
            values, index=index, columns=[str(name).replace("/", "|") for name in names]
        )

    data.obs[key] = predicted if classes is None else pd.Categorical(predicted, categories=classes)
    if classes is not None and hasattr(model, "predict_proba"):
        data.obsm[f"{key}_probabilities"] = frame(model.predict_proba(X), classes)
    shares = inner.contributions(read)
    if shares.ndim == 3:
        if classes is None or getattr(inner, "multi_class", "ovr") == "pairwise":
            raise ValueError(
                "model: it has several outputs, but not one per class; use multi_class='ovr'."
            )
        own = np.searchsorted(classes, predicted)[:, np.newaxis, np.newaxis]
        shares = np.take_along_axis(shares, own, axis=2)[:, :, 0]
    data.obsm[f"{key}_contributions"] = frame(shares, inner.kernel_names_)
    weights = np.atleast_2d(inner.weights_)
    rows = ["all classes"] if classes is None or len(weights) == 1 else list(map(str, classes))
    data.uns[key] = {"weights": frame(weights, inner.kernel_names_, rows)}
    return data


def _in_order_of_cells(X: MatrixLike, cells: Any) -> MatrixLike:
    """Return samples in the order of the cells, by the names of both if the rows of X have any."""
    names = row_names(X)
    if names is None or names.equals(cells) or names.tolist() == cells.tolist():
        return X
    for owner, index in (("X", names), ("data", cells)):
        if not index.is_unique:
            raise ValueError(
                f"{owner}: {index[index.duplicated()][0]!r} is the name of several rows, and the"
                " rows of X are in another order than the cells; give every cell a name of its"
                " own."
            )
    places = names.get_indexer(cells)
    if np.any(places < 0):
        raise ValueError(
            f"X has no row for the cell {cells[int(np.argmin(places))]!r} of data; give the rows of"
            " its cells, as views_from_anndata(data, ...) returns them."
        )
    return _safe_indexing(X, places)


# What is read of one modality ---------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """An AnnData: the whole, or a modality.

    Attributes
    ----------
    name : str
        Of the modality; of the whole it is empty.
    prefix : str
        What the names of its columns begin with in X.
    data : AnnData
    matrix : array, sparse matrix, or a matrix in a file
        What is read of it.
    columns : list of str
        The names of its columns.
    block : int
        Entries of a file that are read at once.
    """

    name: str
    prefix: str
    data: Any
    matrix: Any
    columns: list[str]
    block: int = 2**24

    @classmethod
    def of(cls, name: str, prefix: str, data: Any, layer: str | None, use_raw: bool) -> Part:
        where = f"modality {name!r}: " if name else ""
        source, layers = data, getattr(data, "layers", {})
        if use_raw:
            source = getattr(data, "raw", None)
            if layer is not None or source is None:
                why = (
                    f"layer={layer!r} is not of raw; give one of both"
                    if layer is not None
                    else "data.raw is None"
                )
                raise ValueError(f"{where}use_raw=True: {why}.")
        if layer is not None and layer not in layers:
            known = ", ".join(map(repr, layers)) or "none"
            raise ValueError(
                f"{where}layer={layer!r}: there is no such layer; the layers are {known}."
            )
        matrix = source.X if layer is None else layers[layer]
        if matrix is None:
            raise ValueError(f"{where}X is None: name a layer, or give use_raw=True.")
        columns = [str(one) for one in source.var_names]
        twice = [name for name, count in Counter(columns).items() if count > 1]
        if twice:
            raise ValueError(
                f"{where}the gene {twice[0]!r} comes more than once; call"
                " data.var_names_make_unique()."
            )
        return cls(name, prefix, data, matrix, columns)

    def kernels(
        self, sets: Mapping[str, Any], kernel: Any, min_size: int
    ) -> list[tuple[str, Kernel, Any]]:
        """Return the kernels of the sets, by the names that their columns have in X."""
        known = set(self.columns)
        if not any(gene in known for genes in sets.values() for gene in genes):
            first = next((str(gene) for genes in sets.values() for gene in genes), "none")
            raise ValueError(
                f"gene_sets: no gene of any set is among the {len(known)} of {self.name or 'data'},"
                f" which begin with {self.columns[0]!r}, those of the sets with {first!r}; give"
                " both the same kind of names."
            )
        begin = f"{self.name}: " if self.prefix else ""
        found = by_group(sets, kernel, among=self.columns, min_size=min_size)
        return [
            (begin + name, one, [self.prefix + gene for gene in genes])
            for name, one, genes in found
        ]

    def places(self, names: Sequence[str]) -> Indices:
        """Return the numbers of columns by the names that they have in X, without those of other
        modalities."""
        place = {self.prefix + column: j for j, column in enumerate(self.columns)}
        own = [name for name in names if name.startswith(self.prefix)]
        absent = [name for name in own if name not in place]
        if absent:
            raise ValueError(
                f"genes: {shorten(absent)} of {len(own)} are not among those of"
                f" {self.name or 'data'}; add them, with zeros if they were not measured, or fit to"
                " the genes that both have."
            )
        return np.array([place[name] for name in own], dtype=np.intp)

    def read(self, columns: Indices) -> Any:
        """Return some columns, sparse rows or an array of floats, or raise if one has no number."""
        every = len(columns) == len(self.columns) and bool(np.all(np.diff(columns) == 1))
        blocks = [block if every else block[:, columns] for block in self._blocks()]
        if sparse.issparse(blocks[0]):
            found: Any = sparse.csr_array(
                blocks[0] if len(blocks) == 1 else sparse.vstack(blocks, format="csr")
            )
        else:
            found = np.concatenate([np.asarray(block) for block in blocks])
        # Counts are exact in single precision.
        found = found if found.dtype.kind == "f" else found.astype(np.float32)
        values = found.data if sparse.issparse(found) else found
        if not np.isfinite(values).all():
            bad = np.argwhere(~np.isfinite(found.toarray() if sparse.issparse(found) else found))[0]
            where = f"cell {self.data.obs_names[bad[0]]!r}, gene {self.columns[columns[bad[1]]]!r}"
            raise ValueError(
                f"{self.name or 'data'}: {where} is NaN or infinite; fill it in, or leave the gene"
                " or the cell out."
            )
        return found

    def _blocks(self) -> Iterator[Any]:
        """Yield the rows of the matrix, those of a file a few at a time."""
        matrix, n = self.matrix, len(self.data.obs_names)
        if isinstance(matrix, np.ndarray) or sparse.issparse(matrix):
            yield matrix
        elif hasattr(matrix, "iloc"):
            yield matrix.to_numpy()
        elif getattr(matrix, "format", "csr") == "csc":
            yield matrix[:]  # whose rows are all over the file
        else:
            for rows in row_strips(n, self.block // max(len(self.columns), 1)):
                yield matrix[rows]


def _parts(data: Any, modality: Any, layer: Any, use_raw: bool) -> list[Part]:
    """Return what is to be read: an AnnData, or modalities of a MuData."""
    held = getattr(data, "mod", None)
    if held is None:
        if not hasattr(data, "obs_names") or not hasattr(data, "var_names"):
            raise TypeError(f"data={type(data).__name__}: give an AnnData or a MuData.")
        if modality is not None:
            raise ValueError(
                f"modality={modality!r}: an AnnData has no modalities; leave it None, or give a"
                " MuData."
            )
        return [Part.of("", "", data, layer, use_raw)]
    names = (
        list(held)
        if modality is None
        else [modality]
        if isinstance(modality, str)
        else list(modality)
    )
    unknown = [name for name in names if name not in held]
    if unknown:
        raise ValueError(
            f"modality={unknown[0]!r}: there is none of this name; they are {', '.join(held)}."
        )
    layers = layer if isinstance(layer, Mapping) else dict.fromkeys(names, layer)
    alone = isinstance(modality, str)
    return [
        Part.of(name, "" if alone else name + SEPARATOR, held[name], layers.get(name), use_raw)
        for name in names
    ]


# Side by side -------------------------------------------------------------------------------------


def _side_by_side(data: Any, parts: Sequence[Part], columns: Sequence[Indices]) -> MatrixLike:
    """Return the given columns of all parts as one table, rows in the order of the cells."""
    tables = [part.read(own) for part, own in zip(parts, columns, strict=True)]
    names = [
        [part.prefix + part.columns[j] for j in own]
        for part, own in zip(parts, columns, strict=True)
    ]
    cells = [part.data.obs_names for part in parts]
    if len(parts) > 1 and not all(own.is_unique for own in cells):
        raise ValueError(
            "data: cells of a modality share a name; call its obs_names_make_unique() first."
        )
    index = data.obs_names if len(parts) > 1 else cells[0]
    if any(map(sparse.issparse, tables)):
        rows = [
            SparseTable(table, index=own).reindex(index)
            for table, own in zip(tables, cells, strict=True)
        ]
        whole = rows[0] if len(rows) == 1 else sparse.hstack(rows, format="csr")
        return SparseTable(whole, columns=list(chain.from_iterable(names)), index=index)
    import pandas as pd

    frames = [pd.DataFrame(*one) for one in zip(tables, cells, names, strict=True)]
    return (
        frames[0]
        if len(frames) == 1
        else pd.concat([frame.reindex(index) for frame in frames], axis=1)
    )
