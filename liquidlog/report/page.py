"""The report: one self-contained HTML page for a screen, a phone or paper.

The page answers first whether to rewrite, then shows why, then everything else. It loads nothing
and runs no script; its own security policy forbids both. All text from the log is escaped. Pictures
hold no text, so that labels stay readable at every width.
"""

import shlex
from collections.abc import Iterator
from string import Template

from liquidlog.doctor.findings import Finding
from liquidlog.operations.overview import Overview
from liquidlog.report.page_advice import advice
from liquidlog.report.page_answer import answer
from liquidlog.report.page_details import pictured, summary, tables
from liquidlog.report.page_maps import maps
from liquidlog.report.page_parts import command, counted, moment, section, size
from liquidlog.report.page_past import last_rewrite, trend
from liquidlog.report.page_readings import readings, readings_now
from liquidlog.report.style import PAGE
from liquidlog.spec.text import escaped


def page(overview: Overview, *, workload: str = "W") -> str:
    """Return the page as HTML; `workload` is what commands on it call the readers' workload."""
    location = str(overview.detail["location"])
    name = location.rstrip("/").rpartition("/")[2] or location
    return Template(PAGE).substitute(
        title=escaped(f"{name}, version {overview.detail['version']}"),
        heading=escaped(name),
        location="" if location == name else f"<p><code>{escaped(location)}</code></p>",
        subtitle=escaped(_subtitle(overview)),
        body="\n".join(_sections(overview, workload)),
    )


def named_page(overview: Overview, workload: str) -> str:
    """Return the page, for callers that name a function to other processes."""
    return page(overview, workload=workload)


def _sections(overview: Overview, workload: str) -> Iterator[str]:
    judgement, health = overview.judgement, overview.health
    yield answer(judgement, overview.problem)
    yield from () if judgement is None else readings(judgement)
    yield from () if overview.scan is None else [readings_now(overview.scan)]
    yield from () if overview.key_map is None else maps(overview.key_map)
    yield _findings(overview)
    yield _advice(overview, workload)
    yield from () if health is None else [summary(health)]
    yield from trend(overview.trend)
    yield from last_rewrite(overview.rewrite)
    if health is not None and overview.pictures is not None:
        yield from pictured(health, overview.pictures)
    yield from () if health is None else tables(health)


def _subtitle(overview: Overview) -> str:
    text = f"Delta table at version {overview.detail['version']}"
    health = overview.health
    if health is None:
        return text
    names = ", ".join(health.cluster_by_keys)
    measured = f", measured {moment(health.measured_at)}" if health.measured_at else ""
    return (
        f"{text} of {moment(health.committed_at)} UTC{measured}:"
        f" {counted(health.total_file_count, 'file')}, {size(health.total_bytes)},"
        f" {f'clustered by {names}' if names else 'not clustered'}"
    )


def _findings(overview: Overview) -> str:
    if not overview.findings:
        return section("Findings", '<p class="good">No fault was found.</p>')
    return section("Findings", *map(_finding, overview.findings))


def _finding(finding: Finding) -> str:
    kind = "repaired without a rewrite by" if finding.fixable else "repaired by"
    repair = "" if finding.command is None else f"<p>{kind}</p>{command(finding.command)}"
    return (
        f'<article class="finding"><h3>{escaped(finding.name)}</h3><p>{escaped(finding.detail)}</p>'
        f"{repair}</article>"
    )


def _advice(overview: Overview, workload: str) -> str:
    """Return where to ask for other columns, or for whom the page was judged."""
    table, asked = shlex.quote(str(overview.detail["location"])), shlex.quote(workload)
    judgement = overview.judgement
    if judgement is not None and judgement.readers == "workload":
        return advice(overview.advice, str(overview.detail["location"]), workload)
    return section(
        "Advice",
        "<p>No workload was given. To judge by what your readers really ask:</p>",
        command(f"liquidlog report {table} --workload {asked} -o report.html"),
    )
