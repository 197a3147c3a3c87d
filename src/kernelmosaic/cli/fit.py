"""``kernelmosaic fit``."""

from __future__ import annotations

from pathlib import Path

from kernelmosaic.cli import _fit_options as options
from kernelmosaic.cli._needs import need
from kernelmosaic.cli._paths import existing_file, refuse_overwriting


def fit(
    train: options.Train,
    target: options.Target = None,
    view: options.View = None,
    kernel: options.Kernel = None,
    rows: options.Rows = None,
    drop: options.Drop = None,
    method: options.Method = options.MethodName.mkl,
    task: options.Task = None,
    price: options.Price = None,
    norm: options.Norm = 1.0,
    epsilon: options.Epsilon = None,
    nu: options.Nu = 0.1,
    cost: options.Cost = None,
    test: options.Test = 0.0,
    folds: options.Folds = 5,
    seed: options.Seed = 0,
    jobs: options.Jobs = 1,
    output: options.Output = Path("model.skops"),
    report: options.Report = None,
) -> None:
    """Learn a model from a table: kernels on groups of columns, weighed by the learner."""
    need("pandas", "frames")
    need("skops", "persistence")
    existing_file(train, "a table")
    read = [train, *(Path(text.partition("=")[2]) for text in kernel or ())]
    refuse_overwriting("--output", output, read)
    refuse_overwriting("--report", report, read)
    if report == output:
        raise ValueError(f"--report {report}: the model is written there; give another name.")
    from kernelmosaic.cli._methods import Wishes, read_costs
    from kernelmosaic.cli._training_run import Columns, Request, run_training

    columns = Columns(target, tuple(view or ()), tuple(kernel or ()), rows, tuple(drop or ()))
    costs = read_costs(cost or ())
    asked = "" if task is None else task.value
    wishes = Wishes(method.value, asked, price, norm, nu, epsilon, costs, seed, folds, jobs or 1)
    run_training(Request(train, columns, wishes, test, output, report))
