"""Commands that plan: what would be rewritten, why, and with which effect."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import click

from liquidlog.cli.completion import curves, directories, one_of
from liquidlog.cli.judging import predicted_and_judged
from liquidlog.cli.options import (
    Pairs,
    advice_option,
    bar_options,
    gathered,
    json_option,
    limit_option,
    mapping,
    output_option,
    policy_options,
    rewrite_options,
    storage_option,
    table_argument,
    verb,
    workload_at,
    workload_option,
)
from liquidlog.cli.output import emit, first_of, replace_file, say_rest
from liquidlog.cli.values import LOCAL_FILE, SIZE, Number, WholeNumber
from liquidlog.errors import UsageError
from liquidlog.operations.results import read_advice
from liquidlog.operations.simulate import remembered_settings
from liquidlog.plan.encoding import plan_pieces
from liquidlog.report import plans
from liquidlog.report.courses import course_document, courses, plot
from liquidlog.report.policies import printed_plan
from liquidlog.simulation.contenders import CONTENDERS, contenders, setting
from liquidlog.simulation.prices import START_SECONDS, Prices, costs
from liquidlog.simulation.rounds import Course, Setting
from liquidlog.simulation.rounds import simulate as play_rounds
from liquidlog.simulation.scenarios import SCENARIOS
from liquidlog.simulation.table import empty_table
from liquidlog.spec.sizes import render_size
from liquidlog.table import Table

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_SCENARIO: Final = "full-range"

_PRICE_OPTIONS = {
    "throughput": click.option(
        "--throughput", type=SIZE, help="With a prediction: bytes rewritten per second."
    ),
    "hour_price": click.option(
        "--hour-price", type=Number(0), help="With --throughput: price of an hour of Spark."
    ),
    "tib_price": click.option(
        "--tib-price", type=Number(0), help="With --throughput: price of reading one TiB."
    ),
    "currency": click.option(
        "--currency", help="The currency of these prices, by its three letters: EUR."
    ),
    "start_seconds": click.option(
        "--start-seconds",
        type=Number(0),
        help="With --throughput: seconds until Spark rewrites the first byte."
        f"  [default: {START_SECONDS:g}]",
    ),
}


def _prices(given: Mapping[str, Any]) -> Prices | None:
    if "throughput" in given:
        return Prices(
            throughput_bytes=given["throughput"],
            per_hour=given.get("hour_price"),
            per_tib_read=given.get("tib_price"),
            currency=given.get("currency"),
            start_seconds=given.get("start_seconds", START_SECONDS),
        )
    if given:
        raise UsageError(
            "prices and --start-seconds need --throughput: bytes that the cluster rewrites per"
            " second"
        )
    return None


def _price_options(command: Callable[P, R]) -> Callable[P, R]:
    """Add the options that say what a rewrite costs; they arrive as one `prices`, or None."""
    return gathered(command, _PRICE_OPTIONS, "prices", _prices)


@verb(
    "liquidlog plan ./sales -o plan.json",
    "liquidlog plan ./sales --strategy overlap --budget 50GiB",
)
@table_argument
@rewrite_options
@output_option("Save the plan to this file; replaces it.")
@workload_option(
    "Fit the layout to these readers, and predict what they read: JSON lines, .sql, or a"
    " source of `workload import`."
)
@advice_option
@click.option(
    "--sample", is_flag=True, help="Predict from rows of some files instead of statistics."
)
@click.option(
    "--row-groups",
    is_flag=True,
    help="With --workload: also predict what readers open inside files, from rows and footers of"
    " some files.",
)
@_price_options
@bar_options
@json_option
def plan(
    table: str,
    policy: Mapping[str, Any],
    output: Path | None,
    workload: str | None,
    advice: str | None,
    prices: Prices | None,
    bar: Mapping[str, Any],
    storage_options: Pairs,
    *,
    sample: bool,
    row_groups: bool,
    as_json: bool,
) -> None:
    """Show what OPTIMIZE would rewrite; writes nothing.

    It is also judged whether that is worth it. A saved plan is executed with `run` and committed
    with `commit`. Without readers, a plan is judged for those of one value of one clustering
    column; a large one only if --payback-days or --readings-per-day is given.

    With --advice, a workload only predicts: the advice says what the layout is fitted to.
    """
    if workload is None and row_groups:
        raise UsageError(
            "--row-groups has no effect without readers to predict for: give a --workload",
            option="row_groups",
        )
    if workload is None and "where" not in policy:
        _refuse_without_readers(prices, sample=sample)
    opened = Table.open(table, storage_options=mapping(storage_options))
    asked = workload_at(workload, opened, storage_options)
    if advice is None:
        readers = None if workload is None else asked
        made = opened.plan(**policy, workload=readers, require_fit=False)
    else:
        made = opened.plan_advised(read_advice(advice), **policy)
    predicted, judged = predicted_and_judged(
        opened,
        made,
        policy=policy,
        asked=asked,
        workload_source=workload,
        bar=bar,
        sample=sample,
        row_groups=row_groups,
    )
    if output is not None:
        replace_file(output, plan_pieces(made))
    paid = None if predicted is None or prices is None else costs(predicted, prices)
    if as_json:
        document = {
            **printed_plan(made),
            "judgement": None if judged is None else judged.document(),
            **({} if predicted is None else {"prediction": predicted.document()}),
            **({} if paid is None else {"costs": paid.document()}),
        }
        emit(document, plans.judged_plan, as_json=True)
    elif predicted is None:
        emit((made, judged), plans.judged_plan, as_json=False)
    else:
        emit((made, judged, predicted, paid), plans.predicted_plan, as_json=False)


@verb("liquidlog explain ./sales --all --limit 20", "liquidlog explain ./sales --replay 12")
@table_argument
@policy_options
@click.option("--file", "path", help="Explain only this file, by its path as `files` shows it.")
@click.option("--all", "every", is_flag=True, help="List every file; --json always does.")
@click.option(
    "--replay",
    "replayed",
    type=WholeNumber(1),
    help="Compare with what the OPTIMIZE of this version took.",
)
@limit_option
@json_option
def explain(
    table: str,
    policy: Mapping[str, Any],
    path: str | None,
    replayed: int | None,
    limit: int | None,
    storage_options: Pairs,
    *,
    every: bool,
    as_json: bool,
) -> None:
    """Say why files would or would not be rewritten.

    Files are counted by reason; --all lists each.
    """
    if replayed is not None and (path is not None or every or limit is not None):
        raise UsageError("--replay compares whole plans; leave out --file, --all and --limit")
    opened = Table.open(table, storage_options=mapping(storage_options))
    if replayed is not None:
        found = opened.replay(replayed, **policy)
        emit(found, plans.replayed, as_json=as_json)
        return
    made = opened.plan(**policy)
    if path is None and limit is None and not every and not as_json:
        emit(opened.explain_together(made), plans.explanation, as_json=False)
        return
    rows = opened.explain(made, path=path)
    emit(first_of(rows, limit), plans.explained_files, as_json=as_json, root="explain")
    say_rest(len(rows), limit)


@verb(
    "liquidlog simulate streaming --rounds 30 --append-rate 1GiB",
    "liquidlog simulate ./sales --scenario merge --plot sales.svg",
)
@click.argument("subject", metavar="TABLE|SCENARIO", shell_complete=directories)
@click.option(
    "--scenario",
    type=click.Choice(list(SCENARIOS)),
    help="Which keys are appended to a TABLE.  [default: full-range]",
)
@click.option(
    "--append-rate",
    type=SIZE,
    default="256MiB",
    show_default=True,
    help="Append this size in each round.",
)
@click.option(
    "--rounds", type=WholeNumber(1, 1000), default=100, show_default=True, help="How many rounds."
)
@click.option(
    "--strategy",
    "strategies",
    type=click.Choice(CONTENDERS),
    multiple=True,
    help="all: rewrite everything; new: only new files; cube; overlap; repeats."
    "  [default: all four]",
)
@click.option(
    "--min-cube-size",
    "min_cubes",
    type=SIZE,
    multiple=True,
    help="Minimum size of a stable cube; repeats.  [default: 100GiB]",
)
@click.option(
    "--max-file-size",
    type=SIZE,
    help="Size to divide the input by: the number of files to write.  [default: 1GiB]",
)
@click.option(
    "--curve", shell_complete=one_of(curves), help="Order of rows in a cube.  [default: hilbert]"
)
@click.option(
    "--columns",
    type=WholeNumber(1, 4),
    help="How many clustering columns the table of a SCENARIO has.  [default: 2]",
)
@click.option("--tolerance", type=float, help="overlap: as in `plan`.  [default: 1.27]")
@click.option(
    "--plot",
    "plot_path",
    type=LOCAL_FILE,
    help="Save a picture to this file, as SVG.",
)
@storage_option
@json_option
def simulate(
    subject: str,
    scenario: str | None,
    append_rate: int,
    rounds: int,
    strategies: tuple[str, ...],
    min_cubes: tuple[int, ...],
    max_file_size: int | None,
    curve: str | None,
    columns: int | None,
    tolerance: float | None,
    plot_path: Path | None,
    storage_options: Pairs,
    *,
    as_json: bool,
) -> None:
    """Simulate rounds of appends and rewrites without any data.

    The simulation of a TABLE starts from its current state; that of a SCENARIO (streaming, merge or
    full-range) from an empty table. Nothing is written.
    """
    known = subject in SCENARIOS
    _require_effect(
        {
            "--scenario": known and scenario is not None and f"with the scenario {subject}",
            "--storage-option": known and storage_options and f"with the scenario {subject}",
            "--columns": not known and columns is not None and "on a table, which has its own",
        }
    )
    contending = partial(
        contenders,
        strategies,
        min_cube_bytes=min_cubes,
        max_file_size=max_file_size,
        curve=curve,
        tolerance=tolerance,
    )
    contending()  # refuses wrong options before a table is opened
    remembered: Mapping[str, Any] = {}
    played = subject if known else scenario or DEFAULT_SCENARIO
    if known:
        first = empty_table(columns or 2)
    else:
        opened = Table.open(subject, storage_options=mapping(storage_options))
        first = opened.simulated(append_bytes=append_rate, scenario=played)
        remembered = remembered_settings(opened.snapshot(), strategies)
    made = setting(
        first,
        scenario=played,
        rounds=rounds,
        append_bytes=append_rate,
        max_file_size=max_file_size,
        curve=curve,
        remembered=remembered,
    )
    found = play_rounds(made, contending(remembered=remembered), first)
    if plot_path is not None:
        _save(plot_path, found, made)
    document = {
        "scenario": made.scenario,
        "append_bytes": append_rate,
        "max_file_bytes": made.max_file_bytes,
        "start_bytes": first.size_bytes,
        "courses": [course_document(course) for course in found],
    }
    emit(document if as_json else found, courses, as_json=as_json)


def _refuse_without_readers(prices: Prices | None, *, sample: bool) -> None:
    if prices is not None:
        raise UsageError("--throughput needs readers to predict for: --workload, or --where")
    if sample:
        raise UsageError("--sample needs readers to predict for: --workload, or --where")


def _require_effect(without: Mapping[str, object]) -> None:
    for option, reason in without.items():
        if reason:
            raise UsageError(f"{option} has no effect {reason}", option=option)


def _save(path: Path, found: tuple[Course, ...], made: Setting) -> None:
    title = (
        f"{made.scenario}: {made.rounds} rounds of {render_size(made.append_bytes)},"
        f" files of {render_size(made.max_file_bytes)}"
    )
    replace_file(path, plot(found, title))
