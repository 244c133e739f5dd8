"""The page answers first: what is recommended, what it brings and costs, with its ranges."""

import re
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from liquidlog.foresee.verdict import (
    Cost,
    Criteria,
    Opened,
    Option,
    PredictedReads,
    Range,
    StoreProfile,
    Verdict,
    no_verdict,
)
from liquidlog.operations.doctor import Overview
from liquidlog.predicates.workload import WeightedPredicate
from liquidlog.report.page import READS_LISTED, page
from liquidlog.table import Table
from support.html_pages import Reader, checked

EVIL = "x = '<img src=x onerror=alert(1)>&\"'"
WORKLOAD = (WeightedPredicate("x = 7"), WeightedPredicate("x between 10 and 20", 3.0))
WIDTH = 1000
PROFILE = StoreProfile(latency_seconds=0.0, bytes_per_second=1e5, requests_at_once=1.0)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    path = tmp_path_factory.mktemp("tables") / "t"
    schema = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    made = Table.create(str(path), schema=schema, cluster_by=["x", "y"])
    for first in range(6):
        rows = list(range(first, 600, 6))
        made.append(pa.table({"x": rows, "y": [n * 37 % 600 for n in rows]}))
    return made


@pytest.fixture(scope="module")
def found(table: Table) -> Overview:
    return table.overview(workload=WORKLOAD)


def judged(found: Overview) -> Verdict:
    assert found.verdict is not None
    return found.verdict


def option(found: Overview) -> Option:
    shown = judged(found).shown
    assert shown is not None
    return shown


def read(
    where: str, *, before: int, after: int, low: int, high: int, share: float = 0.5
) -> PredictedReads:
    """Return what a reader opens; a byte takes 10 microseconds."""
    return PredictedReads(
        where=where,
        share=share,
        files_before=6,
        files_after=2,
        files_after_range=Range(1, 3),
        bytes_before=before,
        bytes_after=after,
        bytes_after_range=Range(low, high),
        requests_before=12,
        requests_after=4,
        seconds_before=before / 1e5,
        seconds_after=after / 1e5,
    )


def opened(files: float, size_bytes: float) -> Opened[float]:
    return Opened(files=files, bytes=size_bytes, profile=PROFILE)


def recommending(found: Overview, *rows: PredictedReads, judged_share: float = 1.0) -> Verdict:
    """Return a verdict that recommends a rewrite, with these rows."""

    def mean(size_bytes: Callable[[PredictedReads], float]) -> float:
        return sum(row.share * size_bytes(row) for row in rows)

    shown = option(found)
    best = replace(
        shown,
        prediction=replace(shown.prediction, predicates=rows),
        cost=Cost(bytes_read=5000, bytes_written=5000, seconds=2.6),
        now=opened(6, mean(lambda row: row.bytes_before)),
        after=opened(2, mean(lambda row: row.bytes_after)),
        low=opened(1, mean(lambda row: row.bytes_after_range.low)),
        high=opened(3, mean(lambda row: row.bytes_after_range.high)),
        problem=None,
        command="liquidlog optimize /t --max-file-size 8MiB",
        judged_share=judged_share,
    )
    sentence = "Do it: it pays, as no workload was given."
    return replace(judged(found), answer="rewrite", options=(best,), sentence=sentence)


def shown_of(found: Overview, verdict: Verdict | None, problem: str | None = None) -> str:
    """Return the body of the page of a verdict, up to the findings."""
    html = page(replace(found, verdict=verdict, problem=problem, key_map=None, findings=()))
    return html[html.index("<header") : html.index("<section><h2>Findings")]


def answer(found: Overview, verdict: Verdict | None, problem: str | None = None) -> str:
    return shown_of(found, verdict, problem).partition("<section><h2>")[0]


def queries(found: Overview, verdict: Verdict) -> str:
    _, heading, rows = shown_of(found, verdict).partition("<section><h2>")
    return heading + rows


def widths(html: str, style: str) -> list[float]:
    return [
        float(dict(attributes)["width"] or 0)
        for tag, attributes in Reader(html).found
        if tag == "rect" and attributes.get("class") == style
    ]


def spreads(html: str) -> list[tuple[int, int]]:
    lines = re.findall(r'class="spread" d="M(\d+) .*?H(\d+)', html)
    return [(int(low), int(high)) for low, high in lines]


ROWS = (
    read("x = 1", before=800, after=400, low=300, high=600),
    read("x = 2", before=1000, after=100, low=50, high=200),
)


def test_a_rewrite_that_pays_comes_with_its_command(found: Overview) -> None:
    html = answer(found, recommending(found, *ROWS, judged_share=0.8))
    assert widths(html, "now") == [WIDTH]
    assert widths(html, "bar") == [pytest.approx(250 / 900 * WIDTH, rel=1e-3)]
    assert spreads(html) == [(round(175 / 900 * WIDTH), round(400 / 900 * WIDTH))]
    shown = Reader(html).shown
    for words in (
        "Predicted from 80 % of the rewritten bytes",
        *("Should I rewrite?", "Do it", "It pays, as no workload was given."),
        *("Effect on queries", "72.2 % less waiting", "9 ms", "2 ms"),
        *("6 → 2 (1 to 3)", "900 B → 250 B (175 B to 400 B)", "12 → 4 (2 to 6)"),
        *("Cost", "About 3 s, paid back after about 400 queries"),
        "worth it if it pays back within 30 days, or 1,000 queries if the queries per day are not",
        "liquidlog optimize /t --max-file-size 8MiB",
    ):
        assert words in shown
    assert shown.count("Do it") == 2


def test_days_are_told_only_if_the_rate_is_known(found: Overview) -> None:
    verdict = recommending(found, *ROWS)
    assert "queries, in " not in Reader(answer(found, verdict)).shown
    known = replace(verdict.options[0], per_day=160.0, clusters=True)
    sentence = "Cluster by x, y: a typical query opens less."
    verdict = replace(verdict, answer="cluster", options=(known,), per_day=160.0, sentence=sentence)
    shown = Reader(answer(found, verdict)).shown
    assert "paid back after about 400 queries, in 2.5 days" in shown
    assert "worth it if it pays back within 30 days, at 160 queries per day." in shown
    assert shown.count("Cluster by x, y") == 1
    assert "A typical query opens less." in shown


def test_queries_have_one_scale_and_those_that_save_most_come_first(found: Overview) -> None:
    html = queries(found, recommending(found, *ROWS))
    shown = Reader(html).shown
    assert shown.index("x = 2") < shown.index("x = 1")
    assert widths(html, "now") == [1000, 800]
    assert widths(html, "bar") == [100, 400]
    assert spreads(html) == [(50, 200), (300, 600)]
    assert "50 % of the queries; waits 1 ms instead of 10 ms" in shown
    assert "50 B to 200 B in 1 to 3 files" in shown


def test_who_waits_longer_is_said_to_and_comes_last(found: Overview) -> None:
    worse = read("x = 3", before=100, after=300, low=120, high=400)
    html = queries(found, recommending(found, *ROWS, worse))
    assert '<span class="worse">waits 3 ms instead of 1 ms</span>' in html
    assert Reader(html).shown.rindex("x = 3") > Reader(html).shown.index("x = 1")
    # More bytes in fewer files are not called worse.
    better = replace(worse, seconds_after=0.0005)
    assert "worse" not in queries(found, recommending(found, *ROWS, better))


def test_only_so_many_predicates_are_listed_and_the_rest_are_counted(found: Overview) -> None:
    count = READS_LISTED + 7
    rows = [
        read(f"x = {n}", before=1000, after=n, low=n, high=n, share=1 / count) for n in range(count)
    ]
    html = queries(found, recommending(found, *rows))
    assert Reader(html).count("article", "reader") == READS_LISTED
    rest = (
        "and 7 more predicates with 25.9 % of the queries; altogether, the rewrite saves them time"
    )
    assert rest in Reader(html).shown
    rows[READS_LISTED:] = [replace(row, seconds_after=1.0) for row in rows[READS_LISTED:]]
    html = queries(found, recommending(found, *rows))
    assert rest.replace("saves", "costs") in Reader(html).shown


def test_what_others_wrote_is_escaped(found: Overview) -> None:
    verdict = recommending(found, read(EVIL, before=2, after=1, low=1, high=1, share=1.0))
    best = replace(verdict.options[0], command=f"liquidlog optimize {EVIL}", name=EVIL)
    hostile = replace(verdict, options=(best, replace(best, problem=EVIL)), sentence=EVIL)
    html = shown_of(found, hostile)
    assert "<img" not in html
    assert EVIL in Reader(html).shown
    unmeasured = answer(found, None, EVIL)
    assert "<img" not in unmeasured
    assert EVIL[1:] in Reader(unmeasured).shown


def test_a_table_that_is_best_left_alone_shows_what_a_rewrite_would_do(found: Overview) -> None:
    (best,) = recommending(found, *ROWS).options
    kept = replace(best, problem="readers would wait longer", after=opened(9, 1000))
    verdict = replace(
        judged(found), answer="leave", options=(kept,), sentence="Leave it: who reads would wait."
    )
    text = Reader(answer(found, verdict)).shown
    for words in ("Leave it", "best rewrite that", "never paid back", "Who reads would wait."):
        assert words in text
    assert "Do it with" not in text


def test_what_was_not_measured_is_not_judged(found: Overview) -> None:
    verdict = no_verdict("unknown", "no statistics", Criteria())
    for html in (answer(found, verdict), answer(found, None, "no statistics")):
        assert "Unknown" in Reader(html).shown
        assert "No statistics." in Reader(html).shown
        assert "Leave it" not in Reader(html).shown
    assert queries(found, verdict) == ""


def test_what_a_workload_reads_now_is_shown(table: Table, found: Overview) -> None:
    nothing = no_verdict("leave", "there is nothing to rewrite", Criteria(workload=WORKLOAD))
    scan = table.scan(workload=WORKLOAD)
    read_ = checked(page(replace(found, verdict=nothing, scan=scan)))
    assert "Leave it" in read_.shown
    assert "Queries now" in read_.shown
    _, rows = read_.shown.split("Queries now")
    assert rows.index("x between 10 and 20") < rows.index("x = 7")
    assert read_.count("article", "reader") == len(WORKLOAD)
