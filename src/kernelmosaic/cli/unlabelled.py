"""The work behind ``kernelmosaic embed`` and ``cluster``: coordinates and clusters of rows without labels."""

from __future__ import annotations

import warnings
from dataclasses import asdict, fields
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from kernelmosaic import plots, tables
from kernelmosaic._typing import AnyArray, Estimator, Settings
from kernelmosaic.cli.fit import describe_views
from kernelmosaic.cli.output import print_facts, print_shares, say
from kernelmosaic.cli.predict import rounded
from kernelmosaic.cli.requests import ClusterRequest, EmbedRequest, FitRequest, TableRequest
from kernelmosaic.cli.training_table import TrainingTable, read_training_table
from kernelmosaic.cli.views import ROW_COLUMN, Spec
from kernelmosaic.estimators.card import ModelCard
from kernelmosaic.estimators.unlabelled import MKLClustering, MKLKernelPCA, unlabelled_kernels
from kernelmosaic.persistence import save
from kernelmosaic.reports import Page, Table


def run_unlabelled(request: EmbedRequest) -> None:
    """Read the table, fit, write or print coordinates and clusters, and print the facts."""
    import pandas as pd

    # Rows without targets are read as those of a one-class machine are.
    shared: Settings = {one.name: getattr(request, one.name) for one in fields(TableRequest)}
    default = [Spec.of(kernel) for kernel in unlabelled_kernels()]
    training = read_training_table(FitRequest(**shared, task="one-class"), default)
    raw = tables.read_table(request.path)
    tables.require(raw, request.ids, request.path)
    own = raw.iloc[training.table.index]
    for line in [*describe_views(training), *training.notes]:
        say(note=line)
    pipeline = Pipeline([*training.plan.steps(), ("model", make_model(request, training.kernels))])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        pipeline.fit(training.table)
    for line in dict.fromkeys(str(one.message) for one in said):
        say(note=line)
    model = pipeline.named_steps["model"]
    coordinates = {f"component{i}": column for i, column in enumerate(model.embedding_.T, start=1)}
    clusters = {"cluster": model.labels_} if hasattr(model, "labels_") else {}
    if getattr(model, "n_clusters_", 0) > 1:
        clusters |= rounded({"silhouette": model.silhouette_})
    ids = {name: own[name].to_numpy() for name in request.ids}
    found = pd.DataFrame(ids | clusters | rounded(coordinates))
    pipeline.training_ = {
        "columns": [name for name in training.plan.columns if name != ROW_COLUMN],
        "plan": asdict(training.plan),
        **{name: getattr(training, name) for name in ("views", "lacking", "files")},
    }
    if request.output is None:
        print(tables.table_text(found), end="")
    else:
        tables.write_table(found, request.output)
        print_facts(str(request.path), [("rows", str(len(found))), *ModelCard(model).facts])
        print_shares(ModelCard(model).kernels)
        print(f"Table: {request.output} ({len(found)} rows)")
    if request.model is not None:
        save(pipeline, request.model)
        say(note=f"Model: {request.model}")
    if request.report is not None:
        target = None if request.target is None else own[request.target].to_numpy()
        make_page(pipeline, training, target).write(str(request.report))
        say(note=f"Report: {request.report}")


def make_model(request: EmbedRequest, kernels: list[Any]) -> Estimator:
    """Return the estimator that a request asks for; columns are put on one scale before it."""
    given: Settings = {name: getattr(request, name) for name in ("weights", "missing", "approximation")}
    given |= {"kernels": kernels, "random_state": request.seed, "scale": False}
    if not isinstance(request, ClusterRequest):
        return MKLKernelPCA(n_components=request.components or 2, **given)
    sizes: Settings = {
        f"n_{name}": getattr(request, name) or "auto" for name in ("clusters", "components", "neighbors")
    }
    return MKLClustering(embedding=request.embedding, **sizes, **given)


def make_page(pipeline: Any, training: TrainingTable, target: AnyArray | None) -> Page:
    """Return the page: views and their similarity, clusters, the embedding; pictures are there when matplotlib is."""
    model, rows = pipeline.named_steps["model"], len(training.table)
    lead = (
        f"{rows} rows, {len(model.views_)} views, no labels: {type(model).__name__} on the sum of the views' kernels."
    )
    page, draws = Page(f"{training.request.path.name}: {len(model.views_)} views", lead), find_spec("matplotlib")
    page.table(Table("Summary.", ("what", "value"), ModelCard(model).facts))
    weights = [[name, f"{weight:.3f}", training.lacking.get(name, 0)] for name, weight in model.view_weights_.items()]
    page.table(Table("The views.", ("view", "weight", "lacked by"), weights))
    if hasattr(model, "labels_") and model.n_clusters_ > 1:
        counted = [(k, model.labels_ == k) for k in range(model.n_clusters_)]
        sizes = [[str(k), int(own.sum()), f"{np.mean(model.silhouette_[own]):.3f}"] for k, own in counted]
        page.table(Table("The clusters.", ("cluster", "rows", "mean silhouette"), sizes))
    if draws:
        similar = plots.ViewSimilarityDisplay.from_estimator(model)
        page.figure(similar, "Similarity of the views", "How alike the views are; 0 on average if independent.")
        samples = pipeline[:-1].transform(training.table)
        placed = plots.EmbeddingDisplay.from_estimator(model, samples)
        page.figure(placed, "The rows in two coordinates", "The rows, in two of the coordinates.")
        if target is not None:
            shown = plots.EmbeddingDisplay.from_estimator(model, samples, target)
            page.figure(shown, "The same by the target", "The same, coloured by the column that was left out.")
        page.figure(plots.EigenvaluesDisplay.from_estimator(model), "Eigenvalues", "Eigenvalues, the largest first.")
    return page
