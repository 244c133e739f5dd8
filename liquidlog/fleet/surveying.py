"""Survey one table: what it is like, and which rewrite of it is worth doing, by the one judgement.

Nothing is written but the page that shows it.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from liquidlog.clustering.columns import clustering_state
from liquidlog.errors import LiquidlogError, UnsupportedFeatureError
from liquidlog.fleet.names import file_name
from liquidlog.fleet.outcomes import as_known
from liquidlog.fleet.readers import workload_of
from liquidlog.judgement.verdicts import Bar, Judgement
from liquidlog.operations.overview import Overview
from liquidlog.operations.seen import depth_ratio
from liquidlog.predicates.workload import Workload
from liquidlog.storage import local
from liquidlog.storage.addresses import is_local
from liquidlog.storage.options import StorageOptions
from liquidlog.table import Table
from liquidlog.upkeep.decisions import Decision, gain, spared_bytes_a_day
from liquidlog.workload.form import Query

_PAGE: Final = ".html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """A table as it was looked at; what is not known is None.

    `action` is REWRITE if that is worth it, else LEAVE, or FAIL. `gain_bytes` is what readers are
    spared within the bar's days by the rewrite, the opening of files counted, `cost_bytes` what it
    costs, in the same unit; `gain` is `gain_bytes` per byte of the files that it takes,
    `rewrite_bytes`. `command` makes exactly this rewrite. `page` is the name of the file with the
    table's report.
    """

    table: str
    action: Decision
    reason: str
    version: int | None = None
    files: int | None = None
    size_bytes: int | None = None
    columns: tuple[str, ...] = ()
    depth_ratio: float | None = None
    gain_bytes: int | None = None
    cost_bytes: int | None = None
    rewrite_bytes: int | None = None
    gain: float = 0.0
    payback_days: float | None = None
    command: str | None = None
    page: str | None = None
    seconds: float = 0.0
    error: LiquidlogError | None = None

    def document(self) -> dict[str, Any]:
        """Return the table ready to print as JSON."""
        days = self.payback_days
        return {
            "table": self.table,
            "files": self.files,
            "bytes": self.size_bytes,
            "depth_ratio": self.depth_ratio,
            "gain_bytes": self.gain_bytes,
            "cost_bytes": self.cost_bytes,
            "action": self.action.value,
            "reason": self.reason,
            "version": self.version,
            "cluster_by_keys": list(self.columns),
            "rewrite_bytes": self.rewrite_bytes,
            "payback_days": None if days is None else round(days, 2),
            "command": self.command,
            "page": self.page,
            "seconds": round(self.seconds, 3),
            "error": None if self.error is None else self.error.document(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """Where pages of tables are written, and what makes one of an overview and a workload's name.

    `render` is a function that another process can import.
    """

    directory: str
    render: Callable[[Overview, str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What one process is asked for one table.

    `queries` are those of the workload that ask this table, `source` is where that is; without a
    source, readers are narrow. Options are those of the table's storage.
    """

    address: str
    options: Mapping[str, str] = field(default_factory=dict)
    source: str | None = None
    queries: tuple[Query, ...] = ()
    bar: Bar = field(default_factory=Bar)
    pages: Pages | None = None

    @property
    def storage_options(self) -> Mapping[str, str] | None:
        """The options of the table; on local disk there are none."""
        return None if is_local(self.address) or not self.options else self.options


def surveyed(survey: Survey) -> Surveyed:
    """Return what a table is like and what to do with it; an error is its outcome."""
    started = time.monotonic()
    try:
        found = _surveyed(survey)
    except UnsupportedFeatureError as error:
        found = Surveyed(table=survey.address, action=Decision.LEAVE, reason=error.message)
    except Exception as error:  # noqa: BLE001  one table's failure stops no other
        found = not_surveyed(survey.address, as_known(error))
    return replace(found, seconds=time.monotonic() - started)


def not_surveyed(address: str, error: LiquidlogError) -> Surveyed:
    """Return the outcome of a table that failed."""
    return Surveyed(table=address, action=Decision.FAIL, reason=error.message, error=error)


def _surveyed(survey: Survey) -> Surveyed:
    table = Table.open(survey.address, storage_options=survey.storage_options)
    snapshot = table.snapshot()
    known = Surveyed(
        table=table.uri,
        action=Decision.LEAVE,
        reason="",
        version=snapshot.version,
        files=snapshot.files.num_rows,
        size_bytes=snapshot.size_bytes,
        columns=tuple(column.name for column in clustering_state(snapshot).columns),
    )
    asked: Workload | None = ()
    if survey.source is not None:
        options = StorageOptions.of(survey.storage_options)
        asked = workload_of(survey.queries, table.uri, options)
    if asked is None:
        reason = f"{survey.source} asks nothing of it"
        return replace(
            known,
            reason=reason,
            depth_ratio=depth_ratio(snapshot, table.opened.bounds_of(snapshot)),
        )
    return _judged(survey, table, asked, known)


def _judged(survey: Survey, table: Table, asked: Workload, known: Surveyed) -> Surveyed:
    """Return a table with what its judgement says, and its page, if there are to be any."""
    arguments: dict[str, Any] = {
        "workload": asked,
        "workload_source": survey.source,
        "payback_days": survey.bar.payback_days,
        "readings_a_day": survey.bar.readings_a_day,
    }
    if survey.pages is None:
        snapshot = table.snapshot()
        ratio = depth_ratio(snapshot, table.opened.bounds_of(snapshot))
        return _decided(replace(known, depth_ratio=ratio), table.judge(**arguments))
    overview = table.overview(**arguments, past=False)
    ratio = None if overview.health is None else overview.health.depth_ratio
    name = file_name(table.uri, _PAGE)
    content = survey.pages.render(overview, survey.source or "W")
    local.replace(str(Path(survey.pages.directory, name)), content.encode())
    shown = replace(known, depth_ratio=ratio, page=name)
    if overview.judgement is None:
        return replace(shown, action=Decision.FAIL, reason=overview.problem or "it is not judged")
    return _decided(shown, overview.judgement)


def _decided(known: Surveyed, judgement: Judgement) -> Surveyed:
    best = judgement.best
    if best is None:
        return replace(known, reason=judgement.reason)
    bar = judgement.bar
    spared = spared_bytes_a_day(best, bar.readings_a_day)
    return replace(
        known,
        action=Decision.REWRITE,
        reason=f"{best.name}: {best.reason}",
        gain_bytes=round(spared * bar.payback_days),
        cost_bytes=best.cost_bytes,
        rewrite_bytes=best.plan.size_bytes,
        gain=gain(spared, best.plan.size_bytes, bar.payback_days),
        payback_days=best.payback_days,
        command=best.command,
    )
