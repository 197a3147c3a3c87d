"""Single cells: kernels of gene sets read from an AnnData or MuData, and predictions written to it.

A `Modality` is what is read of one AnnData: of the whole one, or of a modality of a MuData.
"""

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
    sets: Any = gene_sets
    if isinstance(gene_sets, str | PathLike):
        sets = read_gmt(gene_sets)
    if not isinstance(sets, Mapping) or not sets:
        raise TypeError(
            f"gene_sets={gene_sets!r}: give a dict from the name of a set to its genes, or a .gmt"
            " file's path."
        )
    modalities = _read_modalities(data, modality, layer, use_raw)
    are_by_modality = all(isinstance(entry, Mapping) for entry in sets.values())
    kernels: list[tuple[str, Kernel, Any]] = []
    columns: list[Indices] = []
    for modality_data in modalities:
        if are_by_modality and modality_data.name not in sets:
            raise ValueError(
                f"gene_sets: there are none for the modality {modality_data.name!r}, only for"
                f" {', '.join(sets)}; name the modalities to read, such as modality=[...]."
            )
        sets_of_modality = sets[modality_data.name] if are_by_modality else sets
        kernels_of_modality = modality_data.kernels(sets_of_modality, kernel, min_size)
        kernels += kernels_of_modality
        if genes is None:
            genes_of_kernels = {gene for _, _, listed in kernels_of_modality for gene in listed}
            names = [name for name in modality_data.names_in_X() if name in genes_of_kernels]
        else:
            names = list(map(str, genes))
        columns.append(modality_data.column_numbers(names))
    return _side_by_side(data, modalities, columns), kernels


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
    """Write the results of a fitted model for the cells into an AnnData or MuData.

    An ``.h5ad`` file can store them.

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
        modalities = _read_modalities(data, modality, layer, use_raw)
        X = _side_by_side(data, modalities, [entry.column_numbers(names) for entry in modalities])
    if X.shape[0] != len(data.obs_names):
        raise ValueError(
            f"X has {X.shape[0]} rows, and data has {len(data.obs_names)} cells: give one row per"
            " cell."
        )
    X = _in_order_of_cells(X, data.obs_names)
    # 1. Predictions and probabilities.
    predicted = np.asarray(model.predict(X))
    classes = model.classes_ if is_classifier(model) else None
    if classes is None:
        data.obs[key] = predicted
    else:
        data.obs[key] = pd.Categorical(predicted, categories=classes)
        if hasattr(model, "predict_proba"):
            probabilities = model.predict_proba(X)
            data.obsm[f"{key}_probabilities"] = _frame(probabilities, classes, data.obs_names)

    # 2. Contributions of the kernels, of the estimator with the kernels inside a pipeline or
    # search.
    estimator, X_of_estimator = behind_pipeline(model, X)
    contributions = estimator.contributions(X_of_estimator)
    if contributions.ndim == 3:
        if classes is None or getattr(estimator, "multi_class", "ovr") == "pairwise":
            raise ValueError(
                "model: it has several outputs, but not one per class; use multi_class='ovr'."
            )
        class_numbers = np.searchsorted(classes, predicted)[:, np.newaxis, np.newaxis]
        contributions = np.take_along_axis(contributions, class_numbers, axis=2)[:, :, 0]
    kernel_names = estimator.kernel_names_
    data.obsm[f"{key}_contributions"] = _frame(contributions, kernel_names, data.obs_names)

    # 3. Weights.
    weights = np.atleast_2d(estimator.weights_)
    if classes is None or len(weights) == 1:
        weight_rows = ["all classes"]
    else:
        weight_rows = list(map(str, classes))
    data.uns[key] = {"weights": _frame(weights, kernel_names, weight_rows)}
    return data


def _frame(values: Any, columns: Sequence[Any], index: Any) -> Any:
    """Return values as a data frame whose column names have ``|`` in place of ``/``."""
    import pandas as pd

    names = [str(column).replace("/", "|") for column in columns]
    return pd.DataFrame(values, index=index, columns=names)


def _in_order_of_cells(X: MatrixLike, cells: Any) -> MatrixLike:
    """Return samples in the order of the cells, by their names.

    If X names no rows, its rows are in this order already.
    """
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
    positions = names.get_indexer(cells)
    if np.any(positions < 0):
        raise ValueError(
            f"X has no row for the cell {cells[int(np.argmin(positions))]!r} of data; give the rows"
            " of its cells, as views_from_anndata(data, ...) returns them."
        )
    return _safe_indexing(X, positions)


# Reading a modality -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Modality:
    """The matrix that is read of an AnnData, which is alone or a modality of a MuData.

    Attributes
    ----------
    name : str
        The name of the modality; empty for an AnnData that is alone.
    prefix : str
        Stands before the names of its columns in X.
    data : AnnData
    matrix : array, sparse matrix, or a matrix in a file
        `X`, a layer or `raw.X` of the data.
    columns : list of str
        The names of its columns, its genes.
    block : int
        Entries of a file that are read at once; chosen by hand.
    """

    name: str
    prefix: str
    data: Any
    matrix: Any
    columns: list[str]
    block: int = 2**24

    @classmethod
    def of(cls, name: str, prefix: str, data: Any, layer: str | None, use_raw: bool) -> Modality:
        """Return the modality of an AnnData, or raise if it has no such layer or repeats a gene."""
        where = ""
        if name:
            where = f"modality {name!r}: "
        layers = getattr(data, "layers", {})
        source = data
        if use_raw:
            source = getattr(data, "raw", None)
            if layer is not None:
                raise ValueError(
                    f"{where}use_raw=True: layer={layer!r} is not of raw; give one of both."
                )
            if source is None:
                raise ValueError(f"{where}use_raw=True: data.raw is None.")
        if layer is not None and layer not in layers:
            layer_names = ", ".join(map(repr, layers)) or "none"
            raise ValueError(
                f"{where}layer={layer!r}: there is no such layer; the layers are {layer_names}."
            )
        matrix = source.X if layer is None else layers[layer]
        if matrix is None:
            raise ValueError(f"{where}X is None: name a layer, or give use_raw=True.")
        columns = [str(gene) for gene in source.var_names]
        repeated = [gene for gene, count in Counter(columns).items() if count > 1]
        if repeated:
            raise ValueError(
                f"{where}the gene {repeated[0]!r} comes more than once; call"
                " data.var_names_make_unique()."
            )
        return cls(name, prefix, data, matrix, columns)

    def names_in_X(self) -> list[str]:
        """Return the names that the columns have in X."""
        return [self.prefix + column for column in self.columns]

    def kernels(
        self, sets: Mapping[str, Any], kernel: Any, min_size: int
    ) -> list[tuple[str, Kernel, Any]]:
        """Return kernels of the gene sets as ``(name, kernel, columns)``, columns named as in X.

        Parameters
        ----------
        sets : mapping
            Genes by the name of their set.
        kernel, min_size
            As in `views_from_anndata`.
        """
        measured = set(self.columns)
        if not any(gene in measured for genes in sets.values() for gene in genes):
            first_gene = next((str(gene) for genes in sets.values() for gene in genes), "none")
            raise ValueError(
                f"gene_sets: no gene of any set is among the {len(measured)} of"
                f" {self.name or 'data'}, which begin with {self.columns[0]!r}, those of the sets"
                f" with {first_gene!r}; give both the same kind of names."
            )
        name_prefix = ""
        if self.prefix:
            name_prefix = f"{self.name}: "
        kernels = []
        for name, set_kernel, genes in by_group(
            sets, kernel, among=self.columns, min_size=min_size
        ):
            kernels.append((name_prefix + name, set_kernel, [self.prefix + gene for gene in genes]))
        return kernels

    def column_numbers(self, names: Sequence[str]) -> Indices:
        """Return the numbers of columns by their names in X.

        Names of other modalities are left out.
        """
        number = {name: j for j, name in enumerate(self.names_in_X())}
        names_of_modality = [name for name in names if name.startswith(self.prefix)]
        absent = [name for name in names_of_modality if name not in number]
        if absent:
            raise ValueError(
                f"genes: {shorten(absent)} of {len(names_of_modality)} are not among those of"
                f" {self.name or 'data'}; add them, with zeros if they were not measured, or fit to"
                " the genes that both have."
            )
        return np.array([number[name] for name in names_of_modality], dtype=np.intp)

    def read(self, columns: Indices) -> Any:
        """Return columns as a sparse or dense array of floats, or raise if an entry is not
        finite."""
        has_all_columns = len(columns) == len(self.columns) and bool(np.all(np.diff(columns) == 1))
        if has_all_columns:
            blocks = list(self._blocks())
        else:
            blocks = [block[:, columns] for block in self._blocks()]
        is_sparse = sparse.issparse(blocks[0])
        matrix: Any
        if not is_sparse:
            matrix = np.concatenate([np.asarray(block) for block in blocks])
        elif len(blocks) == 1:
            matrix = sparse.csr_array(blocks[0])
        else:
            matrix = sparse.csr_array(sparse.vstack(blocks, format="csr"))
        if matrix.dtype.kind != "f":
            # Counts are exact in single precision.
            matrix = matrix.astype(np.float32)
        values = matrix.data if is_sparse else matrix
        if not np.isfinite(values).all():
            dense = matrix.toarray() if is_sparse else matrix
            row, column = np.argwhere(~np.isfinite(dense))[0]
            where = f"cell {self.data.obs_names[row]!r}, gene {self.columns[columns[column]]!r}"
            raise ValueError(
                f"{self.name or 'data'}: {where} is NaN or infinite; fill it in, or leave the gene"
                " or the cell out."
            )
        return matrix

    def _blocks(self) -> Iterator[Any]:
        """Yield blocks of rows of the matrix.

        A matrix in a file is read a few rows at a time, any other at once.
        """
        matrix = self.matrix
        n_cells = len(self.data.obs_names)
        if isinstance(matrix, np.ndarray) or sparse.issparse(matrix):
            yield matrix
        elif hasattr(matrix, "iloc"):
            yield matrix.to_numpy()
        elif getattr(matrix, "format", "csr") == "csc":
            # The entries of a row are all over a file of columns.
            yield matrix[:]
        else:
            for rows in row_strips(n_cells, self.block // max(len(self.columns), 1)):
                yield matrix[rows]


def _read_modalities(data: Any, modality: Any, layer: Any, use_raw: bool) -> list[Modality]:
    """Return the modalities to read: the AnnData itself, or those of a MuData.

    The parameters are those of `views_from_anndata`.
    """
    anndata_by_name = getattr(data, "mod", None)
    if anndata_by_name is None:
        if not hasattr(data, "obs_names") or not hasattr(data, "var_names"):
            raise TypeError(f"data={type(data).__name__}: give an AnnData or a MuData.")
        if modality is not None:
            raise ValueError(
                f"modality={modality!r}: an AnnData has no modalities; leave it None, or give a"
                " MuData."
            )
        return [Modality.of("", "", data, layer, use_raw)]
    is_single = isinstance(modality, str)
    if modality is None:
        names = list(anndata_by_name)
    elif is_single:
        names = [modality]
    else:
        names = list(modality)
    unknown = [name for name in names if name not in anndata_by_name]
    if unknown:
        raise ValueError(
            f"modality={unknown[0]!r}: there is none of this name; they are"
            f" {', '.join(anndata_by_name)}."
        )
    layers = layer if isinstance(layer, Mapping) else dict.fromkeys(names, layer)
    modalities = []
    for name in names:
        prefix = "" if is_single else name + SEPARATOR
        modalities.append(
            Modality.of(name, prefix, anndata_by_name[name], layers.get(name), use_raw)
        )
    return modalities


# Side by side -------------------------------------------------------------------------------------


def _side_by_side(
    data: Any, modalities: Sequence[Modality], columns: Sequence[Indices]
) -> MatrixLike:
    """Return columns of modalities as one table with the cells of `data` as rows.

    Parameters
    ----------
    data : AnnData or MuData
    modalities : sequence of Modality
    columns : sequence of ndarray of int
        The numbers of the columns to read of each modality.
    """
    tables = []
    names = []
    for modality, numbers in zip(modalities, columns, strict=True):
        tables.append(modality.read(numbers))
        names.append([modality.prefix + modality.columns[j] for j in numbers])
    cell_names = [modality.data.obs_names for modality in modalities]
    is_single = len(modalities) == 1
    index = cell_names[0]
    if not is_single:
        index = data.obs_names
        if not all(names_of_modality.is_unique for names_of_modality in cell_names):
            raise ValueError(
                "data: cells of a modality share a name; call its obs_names_make_unique() first."
            )
    if any(map(sparse.issparse, tables)):
        rows = [
            SparseTable(table, index=cells).reindex(index)
            for table, cells in zip(tables, cell_names, strict=True)
        ]
        stacked = rows[0] if is_single else sparse.hstack(rows, format="csr")
        return SparseTable(stacked, columns=list(chain.from_iterable(names)), index=index)
    import pandas as pd

    frames = [
        pd.DataFrame(table, index=cells, columns=genes)
        for table, cells, genes in zip(tables, cell_names, names, strict=True)
    ]
    if is_single:
        return frames[0]
    return pd.concat([frame.reindex(index) for frame in frames], axis=1)
