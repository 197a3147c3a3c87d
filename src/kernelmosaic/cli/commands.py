"""The commands, their options, and mistakes in them in one line; the work is done elsewhere."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any, Literal

import typer

from kernelmosaic import __version__
from kernelmosaic.cli.methods import (
    CriterionName,
    FitRequest,
    ImputeName,
    LossName,
    MethodName,
    RuleName,
    TaskName,
    read_costs,
)
from kernelmosaic.files import existing_file, replaceable_file

# Paths that can be read and written -----------------------------------------------------------------------------------


def _need(package: str, extra: str) -> None:
    """Raise naming the extra that brings a package, if it is not there."""
    if find_spec(package) is None:
        raise ImportError(f'This command needs {package}: pip install "kernelmosaic[{extra}]"')


def _writable_file(path: Path | None) -> Path | None:
    """Refuse a path that could not be written afterwards."""
    if path is None:
        return None
    if not path.parent.is_dir():
        raise typer.BadParameter(f"the folder {path.parent} does not exist.")
    try:
        target = replaceable_file(path)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    try:
        with TemporaryFile(dir=target.parent):  # permissions alone are no proof
            pass
        if target.exists() and not os.access(target, os.W_OK):
            raise PermissionError
    except OSError:
        raise typer.BadParameter(f"{path} cannot be written; give another path.") from None
    return path


def _model_file(path: Path) -> Path | None:
    """Refuse, beside what cannot be written, the name of a table or a page, which the model would be taken for."""
    if path.suffix.lower() in (".csv", ".tsv", ".txt", ".parquet", ".npz", ".npy", ".html"):
        raise typer.BadParameter(f"{path} is no name for a model; give one such as {path.stem}.skops.")
    return _writable_file(path)


def _table_file(path: Path | None) -> Path | None:
    if path and not path.is_dir() and path.suffix.lower() not in (".csv", ".tsv", ".txt", ".parquet"):
        raise typer.BadParameter(f"{path}: the name must end in .csv, .tsv or .parquet.")
    return _writable_file(path)


def _view_files(views: Sequence[str] | None, on: str | None) -> list[Path]:
    """The files that views with --on may name."""
    if on is None:
        return []
    from kernelmosaic.cli.joining import file_view

    return [file_view(text)[1] for text in views or ()]


def _check_outputs(
    inputs: Sequence[Path],
    kernels: Sequence[str] | None,
    output: Path | None,
    report: Path | None = None,
    what: str = "table",
) -> None:
    """Refuse outputs that are inputs, or one file for two."""
    read = [*inputs, *(Path(text.partition("=")[2]) for text in kernels or ())]
    for option, written in (("--output", output), ("--report", report)):
        for path in read:
            if written is not None and written.exists() and os.path.exists(path) and written.samefile(path):
                raise ValueError(f"{option} {written}: this file is read, and would be overwritten; give another name.")
    if report is not None and report == output:
        raise ValueError(f"--report {report}: the {what} is written there; give another name.")


# Options --------------------------------------------------------------------------------------------------------------


def _positive(value: float | None) -> float | None:
    if value is not None and not 0 < value < float("inf"):
        raise typer.BadParameter(f"{value:g} is not a positive number.")
    return value


def _finite(value: float | None) -> float | None:
    if value is not None and value == float("inf"):
        raise typer.BadParameter("inf is not a finite number.")
    return value


def _share(value: float | None) -> float | None:
    if value is not None and not 0 < value < 1:
        raise typer.BadParameter(f"{value:g} is not between 0 and 1.")
    return value


def _not_one(value: int | None) -> int | None:
    if value == 1:
        raise typer.BadParameter("1 part leaves nothing to learn from; give at least 2, or 0 for no cross-validation.")
    return value


Train = Annotated[Path, typer.Argument(metavar="TRAIN", help="Table to learn from: .csv, .tsv, .parquet or .npz.")]
Target = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="What to predict; several columns of 0 and 1, with commas, are labels."),
]
Event = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Survival: where 1 says that the event was observed at the time in --target, 0 not yet."
    ),
]
View = Annotated[
    list[str] | None,
    typer.Option(
        "--view",
        metavar="NAME=PATTERN:KERNEL",
        help="Columns and their kernels, such as shape=fac_*:linear+gauss*5; with --on also NAME=FILE:KERNEL. "
        "Repeatable; guessed if left out.",
    ),
]
ViewFile = Annotated[
    Path | None,
    typer.Option(
        "--views", metavar="FILE", help='The same in JSON: {"shape": {"columns": ["fac_*"], "kernel": "gauss*5"}}.'
    ),
]
Impute = Annotated[
    ImputeName,
    typer.Option(
        help="Fill empty cells: median of numbers, or the most frequent; views: the median, but a view that a row has "
        "nothing of stays missing. Categories: the most frequent."
    ),
]
Proba = Annotated[bool, typer.Option("--proba", help="Fit probabilities of classes, too.")]
On = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column that names the rows; a --view may then be a file with it."),
]
DropEmpty = Annotated[bool, typer.Option("--drop-empty", help="Leave out the rows that no view has; they are listed.")]
Kernel = Annotated[
    list[str] | None,
    typer.Option("--kernel", metavar="NAME=FILE", help="A square kernel matrix, its rows as in the table. Repeatable."),
]
Rows = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Where each row's number, from 0, in the matrices is.")
]
Drop = Annotated[
    list[str] | None, typer.Option(metavar="PATTERN", help="Columns to leave out, by name or glob. Repeatable.")
]
Method = Annotated[
    MethodName | None,
    typer.Option(
        help="How the kernels are combined. Default: ridge for classes or numbers; mkl for more than 3000 rows, with "
        "--C, --norm, --epsilon, --rule, --cost or --folds, and for other tasks; discriminant for several labels."
    ),
]
Task = Annotated[TaskName | None, typer.Option(help="Guessed from the target if left out.")]
C = Annotated[
    float | None,
    typer.Option(
        "--C",
        callback=_positive,
        help="Price of errors (kappa of bilinear, alpha of discriminant and ridge). Default: by cross-validation; of "
        "ridge, learned.",
    ),
]
Norm = Annotated[
    float | None,
    typer.Option(min=1.0, callback=_finite, help="1: few kernels; above, such as 2: all of them. Default: 1."),
]
Epsilon = Annotated[
    float | None,
    typer.Option(min=0.0, callback=_finite, help="Regression, and censored survival: errors up to this are free."),
]
Loss = Annotated[
    LossName | None,
    typer.Option(
        help="Survival: hazards by Cox's partial likelihood, censored regression on log times, or ranks. Default: cox; "
        "with --epsilon, censored."
    ),
]
Criterion = Annotated[
    CriterionName | None, typer.Option(help="Ridge: what it minimises, leave-one-out error or evidence. Default: loo.")
]
Rule = Annotated[
    RuleName | None,
    typer.Option(
        help="Which C is taken: that of the best score, or the smoothest model within one standard error of it. Of "
        "scores that tie, the smoothest. Default: best."
    ),
]
Groups = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Ridge: rows that are equal here, such as those of a patient, are left out together."
    ),
]
Nu = Annotated[float, typer.Option(min=0.001, max=1.0, help="One-class: share of rows that may be novel.")]
Cost = Annotated[
    list[str] | None,
    typer.Option("--cost", metavar="NAME=FACTOR", help="Penalty on a view or kernel, for mkl and rmkl. Repeatable."),
]
Test = Annotated[float, typer.Option(min=0.0, max=0.9, help="Share of the rows to hold out and score on.")]
Folds = Annotated[
    int | None,
    typer.Option(
        "--folds",
        "--cv",
        min=0,
        max=50,
        callback=_not_one,
        help="Parts of the cross-validation that chooses C, one path of fits per part; 0: none. Default: 5; ridge "
        "needs none.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=2**32 - 1,
        help="Seed of test rows, random starts and shuffled parts. Default: 0, and parts in the order of the rows.",
    ),
]
Jobs = Annotated[int, typer.Option(min=-1, help="Parts of the cross-validation at a time; -1: all processors.")]
Output = Annotated[Path, typer.Option("--output", "-o", callback=_model_file, help="Where to write the model.")]
Report = Annotated[Path | None, typer.Option(callback=_writable_file, help="Where to write a report, an HTML page.")]
Resamples = Annotated[
    int,
    typer.Option(min=0, help="With --report: so many fits to resampled rows, and to permuted targets, for intervals."),
]


def fit(
    path: Train,
    target: Target = None,
    event: Event = None,
    views: View = None,
    view_file: ViewFile = None,
    on: On = None,
    impute: Impute = "none",
    kernels: Kernel = None,
    rows: Rows = None,
    drop: Drop = None,
    drop_empty: DropEmpty = False,
    method: Method = None,
    task: Task = None,
    C: C = None,
    norm: Norm = None,
    epsilon: Epsilon = None,
    loss: Loss = None,
    criterion: Criterion = None,
    rule: Rule = None,
    groups: Groups = None,
    nu: Nu = 0.1,
    costs: Cost = None,
    test: Test = 0.0,
    folds: Folds = None,
    seed: Seed = None,
    jobs: Jobs = 1,
    proba: Proba = False,
    output: Output = Path("model.skops"),
    report: Report = None,
    resamples: Resamples = 0,
) -> None:
    """Learn a model from a table: kernels on groups of columns, weighed by the learner."""
    given = dict(locals())  # the options are the fields of a request
    _need("skops", "persistence")
    existing_file(path, "a table")
    read = [path, *([view_file] if view_file else []), *_view_files(views, on)]
    _check_outputs(read, kernels, output, report, "model")
    from kernelmosaic.cli.fit import train_table
    from kernelmosaic.cli.report import publish

    given |= {name: tuple(given[name] or ()) for name in ("views", "kernels", "drop")}
    given |= {"costs": read_costs(costs or ()), "jobs": jobs or 1}
    publish(train_table(FitRequest(**given)))


Model = Annotated[Path, typer.Argument(help="Model file, from `kernelmosaic fit`.")]
New = Annotated[Path, typer.Argument(help="Table with the model's columns, in any order.")]
TableOutput = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", callback=_table_file, help="Where to write: .csv, .tsv or .parquet. Default: print."
    ),
]
Ids = Annotated[
    list[str] | None, typer.Option("--id", metavar="COLUMN", help="Column to carry over to the output. Repeatable.")
]
NewView = Annotated[
    list[str] | None, typer.Option(metavar="NAME=FILE", help="With --on: a view of the new rows. Repeatable.")
]
NewKernel = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=FILE", help="Similarities of the new rows (down) to the training rows. Repeatable."),
]


def predict(
    model: Model,
    new: New,
    output: TableOutput = None,
    id_columns: Ids = None,
    view: NewView = None,
    on: On = None,
    drop_empty: DropEmpty = False,
    scores: Annotated[bool, typer.Option("--scores", help="Add decision values and each kernel's share.")] = False,
    proba: Annotated[
        bool, typer.Option("--proba", help="Add the probability of each class, in columns p_CLASS.")
    ] = False,
    interval: Annotated[
        float | None,
        typer.Option(callback=_share, help="Ridge: add intervals with this share of targets inside, such as 0.9."),
    ] = None,
    kernel: NewKernel = None,
) -> None:
    """Predict the rows of a table. If it has the target column, the score is printed as well."""
    existing_file(model, "a model file")
    existing_file(new, "a table")
    _check_outputs([model, new, *_view_files(view, on)], kernel, output)
    from kernelmosaic.cli.predict import PredictRequest, run_prediction

    asked = PredictRequest(model, new, tuple(id_columns or ()), tuple(kernel or ()), tuple(view or ()), on, drop_empty)
    run_prediction(asked, output, scores, proba, interval)


def explain(
    model: Model,
    new: New,
    output: TableOutput = None,
    report: Report = None,
    row: Annotated[
        int | None,
        typer.Option(min=1, help="The row that the report draws. Default: the first that lacks a view, or the first."),
    ] = None,
    id_columns: Ids = None,
    view: NewView = None,
    on: On = None,
    drop_empty: DropEmpty = False,
    kernel: NewKernel = None,
) -> None:
    """Say how much each kernel adds to the decision on every row, as a table and, if asked for, as a page."""
    _need("skops", "persistence")
    existing_file(model, "a model file")
    existing_file(new, "a table")
    _check_outputs([model, new, *_view_files(view, on)], kernel, output, report)
    from kernelmosaic.cli.predict import PredictRequest, run_explanation

    asked = PredictRequest(
        model, new, tuple(id_columns or ()), tuple(kernel or ()), tuple(view or ()), on, drop_empty, row
    )
    run_explanation(asked, output, report)


def inspect(
    model: Annotated[Path, typer.Argument(help="Model file, from `kernelmosaic fit` or `kernelmosaic.save`.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Say what is in a model file: kernels and weights, gates, support vectors, cost, gap, columns, version."""
    _need("skops", "persistence")
    existing_file(model, "a model file")
    import json

    from kernelmosaic.cli.output import core, describe, kernel_shares, lines, load_model, print_facts, print_shares

    estimator = load_model(model)
    found = describe(estimator, model)
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    print_facts(str(model), lines(found))
    print_shares(kernel_shares(core(estimator)), found["gates"])


def demo(
    problem: Annotated[
        Literal["patients", "gauss4"], typer.Option(help="Views of patients, or kernels against the Bayes rule.")
    ] = "patients",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the training and test samples.")] = 0,
    samples: Annotated[
        int | None, typer.Option(min=20, max=5000, help="Training samples. Default: 120, of gauss4 600.")
    ] = None,
    report: Annotated[
        Path, typer.Option(callback=_writable_file, help="Where to write the report, an HTML page.")
    ] = Path("kernelmosaic-demo.html"),
) -> None:
    """Compare views alone, their equal and their learned sum on generated patients, in under a minute."""
    from kernelmosaic.cli.output import progress
    from kernelmosaic.demo import PROBLEMS, print_result, write_report

    run_demo, n_steps = PROBLEMS[problem]
    with progress(n_steps) as advance:
        result = run_demo(seed=seed, advance=advance, **({} if samples is None else {"n_train": samples}))
    print_result(result)
    write_report(result, report)
    typer.echo(f"Report: {report}")


app = typer.Typer(
    help="Multiple kernel learning behind scikit-learn's interface.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


def run(argv: Sequence[str] | None = None, commands: typer.Typer = app) -> int:
    """Run a command and return its exit code; see `kernelmosaic.cli.main`."""
    # Typer raises the errors of the argument parser it carries, which is not always importable under one name.
    usage_error: type[Exception] = typer.BadParameter.__mro__[1]
    try:
        code = commands(args=None if argv is None else list(argv), prog_name="kernelmosaic", standalone_mode=False)
    except usage_error as error:
        return _fail(_usage_line(error, sys.argv[1:] if argv is None else argv))
    except OSError as error:
        return _fail(_system_line(error))
    except (ImportError, MemoryError, ValueError) as error:
        return _fail(str(error))
    except (typer.Abort, KeyboardInterrupt):
        print("kernelmosaic: stopped.", file=sys.stderr)
        return 130
    except Exception as error:
        if os.environ.get("KERNELMOSAIC_TRACEBACK"):
            raise
        _fail(f"{type(error).__name__}: {error}. This should not happen; KERNELMOSAIC_TRACEBACK=1 shows where it did.")
        return 1
    return code if isinstance(code, int) else 0


def _fail(message: str) -> int:
    print("kernelmosaic:", " ".join(message.split()), file=sys.stderr)
    return 2


def _usage_line(error: Any, arguments: Sequence[str]) -> str:
    """Return what Typer's parser refused, with the value, which its own message may leave out.

    Parameters
    ----------
    error : UsageError
        Of the parser.
    arguments : sequence of str
        What was typed after the name of the program.
    """
    parameter, message = getattr(error, "param", None), str(error.message).removeprefix("Value error, ")
    if parameter is None or not message:
        command = error.ctx.command_path if error.ctx is not None else "kernelmosaic"
        return f"{error.format_message().rstrip('.')}; `{command} --help` says what there is."
    option, value = _typed(parameter, arguments)
    said = re.escape(value)
    for words, plain in (  # releases of Typer differ in their words
        (rf"^'?{said}'? is not a valid float( range)?\.?$", "input should be a valid number"),
        (rf"^'?{said}'? is not a valid int(eger)?( range)?\.?$", "input should be a valid integer"),
        (rf"^{said} is not in the range (.*?)\.?$", r"input should be in the range \1"),
    ):
        message = re.sub(words, plain, message)
    is_said = re.search(rf"(?<![\w.]){re.escape(value)}(?![\w.])", message) is not None
    given = "" if is_said else f" {value}"
    return f"{option}{given}: {message[:1].lower() + message[1:]}"


def _system_line(error: OSError) -> str:
    """Return what the system refused, without its number, and the notes on it."""
    text = str(error)
    if error.strerror is not None:
        where = "" if error.filename is None else f"{error.filename}: "
        text = f"{where}{error.strerror[:1].lower() + error.strerror[1:]}."
    return " ".join([text, *getattr(error, "__notes__", [])])


def _typed(parameter: Any, arguments: Sequence[str]) -> tuple[str, str]:
    """An option as it was typed, and its value; an argument's name, and nothing."""
    if parameter.param_type_name == "argument":
        return str(parameter.human_readable_name), ""
    for i, word in enumerate(arguments):
        for option in parameter.opts:
            if word == option:
                return option, " ".join(arguments[i + 1 : i + 2])
            if option.startswith("--") and word.startswith(f"{option}="):
                return option, word[len(option) + 1 :]
    return str(parameter.opts[0]), ""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kernelmosaic {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for _command in (demo, fit, predict, explain, inspect):
    app.command()(_command)
