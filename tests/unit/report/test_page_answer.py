"""The page answers first: what is recommended, what it brings and costs, with its ranges."""

import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from liquidlog.foresee.prediction import PredictedReads, Range
from liquidlog.judgement.verdicts import Bar, Judgement, Option
from liquidlog.operations.overview import Overview
from liquidlog.predicates.workload import WeightedPredicate
from liquidlog.report.page import READS_LISTED, page
from liquidlog.table import Table
from support.html_pages import Reader, checked

EVIL = "x = '<img src=x onerror=alert(1)>&\"'"
WORKLOAD = (WeightedPredicate("x = 7"), WeightedPredicate("x between 10 and 20", 3.0))
WIDTH = 1000


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


def judged(found: Overview) -> Judgement:
    assert found.judgement is not None
    return found.judgement


def option(found: Overview) -> Option:
    shown = judged(found).shown
    assert shown is not None
    return shown


def read(
    where: str, *, before: int, after: int, low: int, high: int, share: float = 0.5
) -> PredictedReads:
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
        seconds_before=0.03,
        seconds_after=0.01,
    )


def recommending(found: Overview, *rows: PredictedReads, judged_share: float = 1.0) -> Judgement:
    """Return a judgement that recommends a rewrite, with these rows."""
    shown = option(found)
    mean = {
        name: sum(row.share * getattr(row, name) for row in rows)
        for name in ("bytes_before", "bytes_after", "files_before", "files_after")
    }
    ends = Range(
        sum(row.share * row.bytes_after_range.low for row in rows),
        sum(row.share * row.bytes_after_range.high for row in rows),
    )
    prediction = replace(
        shown.prediction,
        predicates=rows,
        bytes_after_range=ends,
        files_after_range=Range(1, 3),
        **mean,
    )
    best = replace(
        shown,
        prediction=prediction,
        is_worth_it=True,
        payback_days=2.5,
        reading_before=sum(row.share * row.bytes_before for row in rows),
        reading_after=sum(row.share * row.bytes_after for row in rows),
        reading_after_range=ends,
        command="liquidlog optimize /t --max-file-size 8MiB",
        judged_share=judged_share,
    )
    return replace(judged(found), best=best, options=(best,), unmeasured=None, reason="it pays")


def shown_of(found: Overview, judgement: Judgement | None, problem: str | None = None) -> str:
    """Return the body of the page of a judgement, up to the findings."""
    html = page(replace(found, judgement=judgement, problem=problem, key_map=None, findings=()))
    return html[html.index("<header") : html.index("<section><h2>Findings")]


def answer(found: Overview, judgement: Judgement | None, problem: str | None = None) -> str:
    return shown_of(found, judgement, problem).partition("<section><h2>")[0]


def readings(found: Overview, judgement: Judgement) -> str:
    _, heading, rows = shown_of(found, judgement).partition("<section><h2>")
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
    html = answer(found, recommending(found, *ROWS))
    shown = Reader(html).shown
    for words in ("Should I rewrite?", "Rewrite", "It pays.", "What it brings", "What it costs"):
        assert words in shown
    assert "liquidlog optimize /t --max-file-size 8MiB" in shown
    assert "paid back in 2.5 days" in shown
    assert "24 readings of each predicate a day" in shown
    assert "worth it up to 30 days" in shown
    assert "72.2 % less per reading" in shown
    assert "900 B → 250 B (175 B to 400 B)" in shown
    assert "6 → 2 (1 to 3)" in shown


def test_bars_are_in_proportion_and_ranges_are_drawn(found: Overview) -> None:
    html = answer(found, recommending(found, *ROWS))
    assert widths(html, "now") == [WIDTH]
    assert widths(html, "bar") == [pytest.approx(250 / 900 * WIDTH, rel=1e-3)]
    assert spreads(html) == [(round(175 / 900 * WIDTH), round(400 / 900 * WIDTH))]


def test_readings_have_one_scale_and_the_most_spared_come_first(found: Overview) -> None:
    html = readings(found, recommending(found, *ROWS))
    shown = Reader(html).shown
    assert shown.index("x = 2") < shown.index("x = 1")
    assert widths(html, "now") == [1000, 800]
    assert widths(html, "bar") == [100, 400]
    assert spreads(html) == [(50, 200), (300, 600)]
    assert "50 % of the readings; 90 % less to read, 4 files fewer" in shown
    assert "50 B to 200 B, 1 to 3 files" in shown


def test_a_predicate_that_costs_more_is_said_to(found: Overview) -> None:
    worse = replace(read("x = 3", before=100, after=150, low=120, high=200), files_after=7)
    html = readings(found, recommending(found, *ROWS, worse))
    assert '<span class="worse">50 % more to read, 1 file more</span>' in html
    assert Reader(html).shown.rindex("x = 3") > Reader(html).shown.index("x = 1")


def test_more_bytes_in_fewer_files_are_not_called_worse(found: Overview) -> None:
    better = read("x = 3", before=100, after=150, low=120, high=200)
    html = readings(found, recommending(found, *ROWS, better))
    assert "worse" not in html
    assert "50 % more to read, 4 files fewer" in html


def test_only_so_many_predicates_are_listed_and_the_rest_are_counted(found: Overview) -> None:
    count = READS_LISTED + 7
    rows = [
        read(f"x = {n}", before=1000, after=n, low=n, high=n, share=1 / count) for n in range(count)
    ]
    html = readings(found, recommending(found, *rows))
    assert Reader(html).count("article", "reader") == READS_LISTED
    assert "and 7 more predicates with 25.9 % of the readings" in Reader(html).shown


def test_what_others_wrote_is_escaped(found: Overview) -> None:
    judgement = recommending(found, read(EVIL, before=2, after=1, low=1, high=1, share=1.0))
    assert judgement.best is not None
    best = replace(judgement.best, command=f"liquidlog optimize {EVIL}", reason=EVIL)
    other = replace(best, name=EVIL, is_worth_it=False)
    hostile = replace(judgement, best=best, options=(best, other), reason=EVIL)
    html = shown_of(found, hostile)
    assert "<img" not in html
    assert EVIL in Reader(html).shown
    unmeasured = answer(found, None, EVIL)
    assert "<img" not in unmeasured
    assert EVIL[1:] in Reader(unmeasured).shown


def test_a_table_that_is_best_left_alone_shows_what_a_rewrite_would_do(found: Overview) -> None:
    shown = option(found)
    kept = replace(shown, is_worth_it=False, reason="readers would read more", payback_days=None)
    html = answer(found, replace(judged(found), best=None, options=(kept,), reason="leave it"))
    text = Reader(html).shown
    for words in ("Leave it", "What it would bring", "never paid back", "Readers would read more."):
        assert words in text
    assert "Do it with" not in text


def test_what_was_not_measured_is_not_judged(found: Overview) -> None:
    judgement = Judgement(
        readers="narrow", bar=Bar(), unmeasured="no statistics", reason="no statistics"
    )
    for html in (answer(found, judgement), answer(found, None, "no statistics")):
        assert "Not measured" in Reader(html).shown
        assert "No statistics." in Reader(html).shown
        assert "Leave it" not in Reader(html).shown
    assert readings(found, judgement) == ""


def test_a_prediction_from_a_part_is_extended_to_the_whole(found: Overview) -> None:
    html = answer(found, recommending(found, *ROWS, judged_share=0.8))
    # 900 are read now, 250 after a rewrite of four fifths: 900 - 650 / 0.8.
    assert "900 B → 88 B" in Reader(html).shown
    assert "Predicted from 80 % of the bytes" in Reader(html).shown
    rows = readings(found, recommending(found, *ROWS, judged_share=0.8))
    assert widths(rows, "bar") == [300.0]  # and nothing, instead of less than nothing


def test_the_page_is_of_the_workload_that_was_given(table: Table) -> None:
    overview = table.overview(workload=WORKLOAD)
    read_ = checked(page(overview, workload="w & w.sql"))
    assert "Mean reading of your workload" in read_.shown
    assert f"liquidlog advise {table.uri} --workload 'w & w.sql'" in read_.shown
    assert "75 % of the readings" in read_.shown
    narrow = checked(page(table.overview()))
    assert "one value of x" in narrow.shown
    assert f"liquidlog report {table.uri} --workload W" in narrow.shown


def test_what_a_workload_reads_now_is_shown_without_a_rewrite(
    table: Table, found: Overview
) -> None:
    nothing = replace(judged(found), best=None, options=(), reason="there is nothing to rewrite")
    scan = table.scan(workload=WORKLOAD)
    read_ = checked(page(replace(found, judgement=nothing, scan=scan)))
    assert "Leave it" in read_.shown
    assert "Readings now" in read_.shown
    assert "x = 7" in read_.shown
    assert read_.count("article", "reader") == len(WORKLOAD)


def test_tables_without_columns_or_files_are_answered(tmp_path: Path) -> None:
    schema = pa.schema([("x", pa.int64())])
    plain = Table.create(str(tmp_path / "plain"), schema=schema)
    plain.append(pa.table({"x": [1, 2, 3]}))
    for workload in ((), WORKLOAD):
        read_ = checked(page(plain.overview(workload=workload)))
        assert "Should I rewrite?" in read_.shown
        assert "not clustered" in read_.shown
        assert read_.count("path", "area") == 0
    empty = Table.create(str(tmp_path / "empty"), schema=schema, cluster_by=["x"])
    read_ = checked(page(empty.overview()))
    assert "Leave it" in read_.shown
    assert read_.count("figure") == 0


def test_one_file_is_drawn(tmp_path: Path) -> None:
    schema = pa.schema([("x", pa.int64()), ("s", pa.string())])
    made = Table.create(str(tmp_path), schema=schema, cluster_by=["x", "s"])
    made.append(pa.table({"x": [1, 5], "s": ["a", "b"]}))
    read_ = checked(page(made.overview()))
    assert read_.count("path", "box") >= 1
    assert "Leave it" in read_.shown


def test_axes_have_labels_and_maps_a_legend(found: Overview) -> None:
    read_ = checked(page(found))
    vertical = [a for t, a in read_.found if a.get("class") == "upwards"]
    figures = read_.count("figure")
    assert figures >= 4
    assert len(vertical) >= figures
    assert read_.count("div", "ticks") >= figures
    assert "one file" in read_.shown
    assert {"0", "599"} <= {word.strip() for word in read_.words}
    assert "version 0" in read_.shown
