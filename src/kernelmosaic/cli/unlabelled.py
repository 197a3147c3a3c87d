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
from kernelmosaic.cli.predict import placed, rounded
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
    ids = {name: own[name].to_numpy() for name in request.ids}
    found = pd.DataFrame(ids | placed(getattr(model, "labels_", None), model.embedding_))
    if getattr(model, "n_clusters_", 0) > 1:
        found["silhouette"] = rounded({"silhouette": model.silhouette_})["silhouette"]
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
    for name in ("clusters", "components", "neighbors"):
        given[f"n_{name}"] = getattr(request, name) or "auto"
    return MKLClustering(embedding=request.embedding, **given)


def make_page(pipeline: Any, training: TrainingTable, target: AnyArray | None) -> Page:
    """Return the page: views and their similarity, clusters, the embedding; pictures are there when matplotlib is."""
    model, what = pipeline.named_steps["model"], f"{len(training.table)} rows without labels"
    lead = f"{what}: {type(model).__name__} on the sum of the kernels of {len(model.views_)} views."
    page, draws = Page(f"{training.request.path.name}: {what}", lead), find_spec("matplotlib")
    page.table(Table("Summary.", ("what", "value"), ModelCard(model).facts))
    weights = [[name, f"{weight:.3f}", training.lacking.get(name, 0)] for name, weight in model.view_weights_.items()]
    page.table(Table("The views.", ("view", "weight", "lacked by"), weights))
    if hasattr(model, "labels_") and model.n_clusters_ > 1:
        each = [(k, model.silhouette_[model.labels_ == k]) for k in range(model.n_clusters_)]
        sizes = [[str(k), len(own), f"{np.mean(own):.3f}"] for k, own in each]
        page.table(Table("The clusters.", ("cluster", "rows", "mean silhouette"), sizes))
    if draws:
        page.figure(plots.ViewSimilarityDisplay.from_estimator(model), "Similarity", "How alike the views are.")
        for y, by in ((None, ""), (target, f", by {training.request.target}")):
            if y is not None or not by:
                drawn = plots.EmbeddingDisplay.from_estimator(pipeline, training.table, y)
                page.figure(drawn, f"The rows in two coordinates{by}", f"The rows, in two of the coordinates{by}.")
        page.figure(plots.EigenvaluesDisplay.from_estimator(model), "Eigenvalues", "Eigenvalues, the largest first.")
    return page
