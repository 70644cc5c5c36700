"""`hetmogp fit`."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .application import (
    DropMissing,
    Inputs,
    Json,
    Labels,
    Seed,
    app,
    fail,
    interrupted,
    one_clear_line,
    tell,
)
from .files import (
    check_inputs,
    columns_of,
    is_many,
    learned,
    read_table,
    refuse_many,
    split_names,
    will_write,
    with_inputs,
    with_labels,
)
from .holdout import chosen, only, scored
from .words import kernel_from, output_from

if TYPE_CHECKING:
    import pandas as pd

    from ..disk import Table
    from ..model import HetMOGP

NO_MODEL = "interrupted before a model was written"
OPTIONS = (  # of the command, that are those of HetMOGP
    *("latents", "local", "rank", "inducing", "prior", "method", "weight_scale", "batch_size"),
    *("max_iter", "tol", "restarts", "dtype", "seed"),
)


def _latents(text: str, least: int = 1) -> int | str:
    """A number of latents, or "auto"."""
    if text == "auto":
        return text
    if not text.isdecimal() or int(text) < least:
        raise typer.BadParameter(f"{text!r} is neither a whole number >= {least} nor auto")
    return int(text)


def _local(text: str) -> int | str:
    """A number of local latents, or "auto"."""
    return _latents(text, 0)


@app.command()
def fit(
    context: typer.Context,
    data: Annotated[
        Path,
        typer.Argument(
            help="A CSV or Parquet file, one row per observation; or a folder or pattern of "
            "files, which need not fit into memory."
        ),
    ],
    inputs: Inputs,
    output: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME:LIKELIHOOD with any :OPTION=VALUE; repeat for more outputs. Without a "
            "likelihood, or with auto, one is chosen. Without --output all other columns are "
            "outputs.",
        ),
    ] = None,
    labels: Labels = None,
    drop_missing: DropMissing = False,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Where to save the model; by default next to the data, ending in .hetmogp."
        ),
    ] = None,
    latents: Annotated[
        Any,
        typer.Option(
            parser=_latents,
            metavar="NUMBER|auto",
            help="Q, the number of latent processes; auto keeps those that pay.",
        ),
    ] = "auto",
    local: Annotated[
        Any,
        typer.Option(
            parser=_local,
            metavar="NUMBER|auto",
            help="The number of local latents, for fine detail; auto keeps those that pay.",
        ),
    ] = "auto",
    rank: Annotated[
        int, typer.Option(min=1, help="R, the number of independent copies of each latent.")
    ] = 1,
    linear: Annotated[
        str | None, typer.Option(help="Inputs that act as straight lines, such as dose,age.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Inputs whose values have random intercepts, such as patient,site."),
    ] = None,
    kernel: Annotated[
        str, typer.Option(help="Such as matern32, or '(rbf + linear) * periodic:period=7d'.")
    ] = "rbf",
    inducing: Annotated[
        int | None, typer.Option(min=1, help="The number of inducing inputs; chosen by default.")
    ] = None,
    prior: Annotated[
        Literal["lmc", "independent"],
        typer.Option(help="Shared latents (lmc), or one for each function."),
    ] = "lmc",
    method: Annotated[
        Literal["auto", "vem", "svi"],
        typer.Option(help="vem (full batches), svi (mini-batches), or auto."),
    ] = "auto",
    weight_scale: Annotated[
        float | None,
        typer.Option(
            help="The width of the prior of the functions' sizes, 3 by default; 1 shrinks more."
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows in a mini-batch.")] = 500,
    max_iter: Annotated[
        int | None, typer.Option(min=0, help="The most rounds (vem) or steps (svi).")
    ] = None,
    tol: Annotated[
        float | None, typer.Option(help="Nats per value; a smaller gain is convergence.")
    ] = None,
    restarts: Annotated[int | None, typer.Option(min=1, help="How many starts to try.")] = None,
    dtype: Annotated[
        Literal["float64", "float32"], typer.Option(help="The precision of all computations.")
    ] = "float64",
    holdout: Annotated[
        float,
        typer.Option(min=0.0, max=0.9, help="The share of rows kept from the fit, to score it on."),
    ] = 0.0,
    by: Annotated[
        str | None,
        typer.Option(
            help="Hold out whole groups of rows: those with the same value in this column."
        ),
    ] = None,
    holdout_after: Annotated[
        str | None,
        typer.Option(
            help="Hold out the rows after this date or number of an input (--by says which)."
        ),
    ] = None,
    intervals: Annotated[
        bool,
        typer.Option(
            "--intervals",
            help="Also find how well lengthscales and correlations are determined.",
        ),
    ] = False,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="A folder for checkpoints of the fit, for --resume."),
    ] = None,
    every: Annotated[
        int | None, typer.Option(min=1, help="Rounds or steps between two checkpoints.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the latest checkpoint, if there is one.")
    ] = False,
    distributed: Annotated[
        bool,
        typer.Option(
            "--distributed",
            help="Fit with several processes that all run this command: under SLURM, Kubernetes or "
            "mpirun, or with the next three options.",
        ),
    ] = False,
    coordinator: Annotated[
        str | None, typer.Option(help="Host and port of process 0, as 10.0.0.1:12345.")
    ] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="The number of processes.")] = None,
    process: Annotated[
        int | None, typer.Option(min=0, help="The number of this process, from 0.")
    ] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Fit one model to the columns of a table, and save it.

    Inputs may be numbers, dates (as 2024-05-31) and labels. An empty cell of an output means that
    it was not observed. Options of likelihoods follow colons; several values are separated by |.

    Examples:
    hetmogp fit sales.csv --inputs lat,lon --output flat:bernoulli --output log_price:hetgaussian

    hetmogp fit visits.csv --inputs date,site --output cases:poisson:exposure=population
    --output grade:ordinal:classes='low|mid|high' --kernel 'rbf*periodic:period=7d'

    hetmogp fit table.parquet --inputs t --model all.hetmogp --holdout 0.2 --json

    hetmogp fit visits.csv --inputs date,site --output cases:poisson --holdout 0.2 --by site

    hetmogp fit visits.csv --inputs date,dose,patient --output cases:poisson --linear dose
    --group patient

    srun hetmogp fit sales/ --inputs lat,lon --model sales.hetmogp --distributed --checkpoint kept
    --resume
    """
    with one_clear_line(NO_MODEL), _group(distributed, coordinator, processes, process) as first:
        here = is_many(data) or data.exists()
        if model is None and here and not (data.is_dir() or data.is_file()):
            fail(f"where should the model of {data} be saved? Name a file with --model")
        text = [] if labels is None else [labels, *split_names(labels)]
        many = _many(data, inputs, text, bool(holdout or holdout_after)) if is_many(data) else None
        table = read_table(data, text) if many is None else next(many.frames(many.columns))
        names = split_names(inputs, table.columns)
        if many is None:
            table = with_inputs(table, names, data, drop_missing)
        else:
            refuse_many(data, drop_missing)
        X = with_labels(columns_of(table, names, data), labels, data)
        if many is None:
            check_inputs(X, data)
        target = data.with_suffix(".hetmogp") if model is None else model
        if first:
            will_write(target, data)
        named = _outputs(output, table, X, data)
        from ..model import HetMOGP
        from ..storage import refuse_unsaveable

        refuse_unsaveable(named, X, table)
        if intervals and many is not None:
            fail(f"--intervals is for a single file, not for {data}")
        options = {name: context.params[name] for name in OPTIONS}
        for option, some in (("linear", linear), ("groups", group)):
            options[option] = None if some is None else split_names(some, names)
        plain = kernel.strip().lower() == "rbf"
        estimator = HetMOGP(named, kernel=None if plain else kernel_from(kernel), **options)
        out = chosen(table, X, data, holdout, by, holdout_after, seed)
        held = out.held
        seen = (X, only(table, named, ~held) if held.any() else table) if many is None else (many,)
        estimator.fit(*seen, checkpoint=checkpoint, every=every, resume=resume)
        if many is None:
            estimator.mark_held_out(X, *out)
        if first:
            estimator.save(target)
        try:
            scores = scored(estimator, X, table) if held.any() else None
            if many is None and not estimator.interrupted_:
                _assess(estimator, seen, scores is None, intervals)
        except KeyboardInterrupt:
            interrupted(f"interrupted after the fit, while it was scored: the model is in {target}")
        if first:
            estimator.save(target)  # again, with what was found out since
            _show(estimator, target, scores, as_json)
        if estimator.interrupted_:
            beside: Any = scores[0] if scores is not None else None
            if beside is None and many is None:
                beside = estimator.compare_baselines(X, table).to_dict("index")
            interrupted(_so_far(estimator, target, beside, bool(held.any()), checkpoint))


@contextmanager
def _group(
    wanted: bool, coordinator: str | None, processes: int | None, process: int | None
) -> Iterator[bool]:
    """Make this process one of a group, if that is wanted; yields whether it is the first."""
    if not wanted:
        if (coordinator, processes, process) != (None, None, None):
            fail("--coordinator, --processes and --process go with --distributed")
        yield True
        return
    from ..distributed import give_up, index, initialize

    try:
        initialize(coordinator, processes, process)
        yield index() == 0
    except BaseException:
        give_up()  # the others may be waiting for this one, so it must not wait for them
        raise


def _many(data: Path, inputs: str, text: list[str], holdout: bool) -> "Table":
    """The table that many files hold."""
    from ..disk import Table

    if holdout:
        fail(f"--holdout is for a single file, not for {data}")
    table = Table(data, inputs=(), text=text)
    table.inputs = split_names(inputs, table.columns)
    return table


def _outputs(
    words: list[str] | None, table: "pd.DataFrame", X: "pd.DataFrame", data: Path
) -> dict[str, Any]:
    """The likelihood of each output, "auto" where it is to be found."""
    from ..tables import RESERVED

    named: dict[str, Any] = {}
    for one in words or ():
        name, likelihood = output_from(one, list(table.columns))
        if name in named:
            fail(f"output {name!r} is named twice")
        if name == RESERVED:
            fail(f"an output cannot be called {RESERVED!r}, which scores use; rename the column")
        if name in X:
            fail(f"{name!r} is named as an input and as an output")
        named[name] = likelihood
    if not words:
        named = {name: "auto" for name in table.columns if name not in X and name != RESERVED}
        if RESERVED in table.columns:
            warnings.warn(f"column {RESERVED!r} is left out: scores use that name", stacklevel=2)
        if not named:
            fail(f"{data} has no column beside the inputs")
    columns_of(table, list(named), data)
    return named


def _assess(model: "HetMOGP", fitted: tuple[Any, ...], unscored: bool, intervals: bool) -> None:
    """Score each value left out, where no rows were held out, and find intervals if asked to.

    Mini-batches allow neither: then there are no such scores, and a warning says that there are no
    intervals.
    """
    full = model.method_ == "vem"
    if full and unscored:
        model.leave_one_out(*fitted)
    if full and intervals:
        model.intervals(*fitted)
    if intervals and not full:
        words = "--intervals needs a fit on full batches; this one was on mini-batches and has none"
        warnings.warn(words, UserWarning, stacklevel=2)


def _so_far(
    model: "HetMOGP",
    target: Path,
    beside: Mapping[Any, Mapping[Any, Any]] | None,
    held: bool,
    checkpoint: Path | None,
) -> str:
    """Where the model of a fit that was interrupted is, and how good it is."""
    words = f"interrupted: the model so far is in {target}; its bound is {model.elbo_:,.2f}"
    if beside is not None:
        gains = (f"{name} {beside[name]['over_constant']:+.3f}" for name in model.output_names_)
        rows = "held out" if held else "that were fitted"
        words += f". Over the best constants, on rows {rows}, it gains {', '.join(gains)} nats "
        words += "a value"
    return words if checkpoint is None else f"{words}. --resume goes on from {checkpoint}"


def _show(
    model: "HetMOGP", target: Path, scores: tuple[dict[str, Any], str] | None, as_json: bool
) -> None:
    """Print what was learned."""
    content, text = learned(model, target), str(model.summary())
    if scores is not None:
        content["holdout"], words = scores
        text += f"\n\nheld-out rows\n{words}"
    tell(as_json, content, f"{text}\n\nmodel: {target}")
