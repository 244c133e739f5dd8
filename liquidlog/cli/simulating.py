"""The command that plays rounds of appends and rewrites."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from liquidlog.cli.common import SIZE, Pairs, emit, json_option, mapping, storage_option
from liquidlog.cli.outputs import replace_file
from liquidlog.cli.usage import WholeNumber
from liquidlog.clustering.planning.planner import policy_settings
from liquidlog.errors import UsageError
from liquidlog.plan import DEFAULT_MAX_FILE_BYTES, DEFAULT_MIN_CUBE_BYTES, ClusteringPolicy
from liquidlog.report.courses import course_document, courses, plot
from liquidlog.simulation.rounds import EVERYTHING, Contender, Course, Setting, simulate
from liquidlog.simulation.scenarios import SCENARIOS
from liquidlog.simulation.table import SimulatedTable, empty_table
from liquidlog.spec.sizes import render_size
from liquidlog.table import Table

STRATEGIES = ("all", "new", "cube", "overlap")


@click.command("simulate")
@click.argument("subject", metavar="TABLE|SCENARIO")
@click.option(
    "--scenario",
    type=click.Choice(list(SCENARIOS)),
    help="How appends to a TABLE lie in key space [full-range].",
)
@click.option("--append-rate", type=SIZE, default="256MiB", help="Bytes of a round [256MiB].")
@click.option("--rounds", type=WholeNumber(1, 1000), default=100, help="[100]")
@click.option(
    "--strategy",
    "strategies",
    type=click.Choice(STRATEGIES),
    multiple=True,
    help="all: rewrite everything; new: only new files; cube; overlap. Repeats; all four if none.",
)
@click.option("--min-cube-size", "min_cubes", type=SIZE, multiple=True, help="Repeats [100GiB].")
@click.option("--max-file-size", type=SIZE, help="[1GiB]")
@click.option("--curve", help="Order inside a cube [hilbert].")
@click.option("--columns", type=WholeNumber(1, 4), help="Of a SCENARIO [2].")
@click.option("--tolerance", type=float, help="overlap: as for plan.")
@click.option("--plot", "plot_path", type=click.Path(dir_okay=False), help="Save an SVG here.")
@storage_option
@json_option
def simulate_command(  # noqa: PLR0913  one parameter per option
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
    plot_path: str | None,
    storage_options: Pairs,
    *,
    as_json: bool,
) -> None:
    """Play rounds of appends and rewrites; from a TABLE as it is, or on an empty one.

    SCENARIO is streaming, merge or full-range. No data is read and nothing is written.
    """
    known = subject in SCENARIOS
    chosen = strategies or STRATEGIES
    _require_effect(
        {
            "--scenario": known and scenario is not None and f"with the scenario {subject}",
            "--storage-option": known and storage_options and f"with the scenario {subject}",
            "--columns": not known and columns is not None and "on a table, which has its own",
            "--tolerance": tolerance is not None
            and "overlap" not in chosen
            and "without --strategy overlap",
            "--min-cube-size": min_cubes
            and not {"cube", "overlap"} & {*chosen}
            and "without --strategy cube or overlap",
        }
    )
    shared = policy_settings({"max_file_size": max_file_size, "curve": curve})
    setting = Setting(
        scenario=subject if known else scenario or "full-range",
        rounds=rounds,
        append_bytes=append_rate,
        max_file_bytes=shared.get("max_file_bytes", DEFAULT_MAX_FILE_BYTES),
        curve=shared.get("curve", "hilbert"),
    )
    first = empty_table(columns or 2) if known else _first(subject, setting, storage_options)
    alone = curve is not None and first.columns == 1
    _require_effect({"--curve": alone and "with one column, which is always in linear order"})
    policies = dict.fromkeys(STRATEGIES, shared)
    policies["overlap"] = {**shared, **policy_settings({"tolerance": tolerance})}
    contenders = tuple(_contenders(chosen, min_cubes or (DEFAULT_MIN_CUBE_BYTES,), policies))
    found = simulate(setting, contenders, first)
    if plot_path is not None:
        _save(plot_path, found, setting)
    document = {
        "scenario": setting.scenario,
        "append_bytes": append_rate,
        "max_file_bytes": setting.max_file_bytes,
        "start_bytes": first.size_bytes,
        "courses": [course_document(course) for course in found],
    }
    emit(document if as_json else found, courses, as_json=as_json)


def _require_effect(without: Mapping[str, object]) -> None:
    for option, reason in without.items():
        if reason:
            raise UsageError(f"{option} has no effect {reason}", option=option)


def _first(subject: str, setting: Setting, storage_options: Pairs) -> SimulatedTable:
    opened = Table.open(subject, storage_options=mapping(storage_options))
    return opened.simulated(append_bytes=setting.append_bytes, scenario=setting.scenario)


def _contenders(
    strategies: tuple[str, ...],
    min_cubes: tuple[int, ...],
    policies: Mapping[str, Mapping[str, Any]],
) -> Iterator[Contender]:
    """Yield the design document's three options and ours, each with its minimum cube sizes."""
    for name in dict.fromkeys(strategies):
        policy = policies[name]
        if name in {"all", "new"}:
            size = EVERYTHING if name == "all" else 1
            sized = ClusteringPolicy(min_cube_bytes=size, target_cube_bytes=EVERYTHING, **policy)
            yield Contender(name=name, strategy="cube", policy=sized)
            continue
        for size in dict.fromkeys(min_cubes):
            sized = ClusteringPolicy(
                min_cube_bytes=size, target_cube_bytes=size + size // 2, **policy
            )
            label = f"{name} {render_size(size)}"
            yield Contender(name=label, strategy=name, policy=sized)


def _save(path: str, found: tuple[Course, ...], setting: Setting) -> None:
    title = (
        f"{setting.scenario}: {setting.rounds} rounds of {render_size(setting.append_bytes)},"
        f" files of {render_size(setting.max_file_bytes)}"
    )
    replace_file(Path(path), plot(found, title))
