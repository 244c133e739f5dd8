"""Reports of plans: what would be rewritten, why, and with which effect."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from liquidlog.foresee.reads import Prediction
from liquidlog.foresee.verdict import Verdict
from liquidlog.operations.planned import Explained
from liquidlog.plan import ClusteringPlan, FittedWorkload, RewriteGroup
from liquidlog.report.jsonable import policy_document, settings_text
from liquidlog.report.layout import Line, Report, amount, between, listing, remarks, size, verdict
from liquidlog.spec.schema import quote_path
from liquidlog.spec.text import render_size

_CURVE_ADVICE: Final = (
    "--curve kd would write narrower files; docs/curves.md says when that is the better choice"
)

_READS: Final = (
    "predicate",
    "share",
    "files before",
    "after",
    "range",
    "bytes before",
    "after",
    "range",
)


def plan(made: ClusteringPlan) -> Report:
    """Show how many files would be rewritten, and why others would not."""
    names = ", ".join(quote_path(column.logical) for column in made.columns)
    taken = sum(len(group.inputs) for group in made.groups)
    head = Line(
        f"{made.mode.value} of version {made.read_version}"
        + (f" by {names} along {made.curve}" if names else "")
        + f": {taken} files ({render_size(made.size_bytes)}) in {len(made.groups)} group(s),"
        f" {len(made.skipped)} files left alone"
    )
    kept = sum(len(group.kept) for group in made.groups)
    kept_bytes = sum(group.kept.size_bytes for group in made.groups)
    lies_well = (
        f"{kept} files ({render_size(kept_bytes)}) are narrow already and only join the new cubes"
    )
    policy = policy_document(made)
    is_remembered = any(setting["from"] == "property" for setting in policy.values())
    settings = settings_text(policy) if is_remembered else ""
    whose = "partition" if made.partitioned_by else "cube"
    groups = (
        (
            str(group.group_id),
            _partition(group) if made.partitioned_by else group.zcube_id or "",
            str(len(group.inputs)),
            render_size(group.size_bytes),
            str(group.expected_outputs),
        )
        for group in made.groups
    )
    by_reason = made.skipped.columns.group_by("reason", use_threads=False)
    summed = by_reason.aggregate([("size_bytes", "count"), ("size_bytes", "sum")])
    skipped = (
        (reason, str(files), render_size(size_bytes))
        for reason, files, size_bytes in zip(
            *(column.to_pylist() for column in summed.columns), strict=True
        )
    )
    return (
        head,
        *([Line(lies_well)] if kept else []),
        *([Line(f"settings: {settings}")] if settings else []),
        *_layout(made),
        *listing(("group", whose, "files in", "size", "files out"), groups),
        *listing(("left alone because", "files", "size"), skipped),
        *([Line(_CURVE_ADVICE)] if made.kd_would_be_narrower else []),
        *(Line(f"note: {note}") for note in made.notes),
    )


def _partition(group: RewriteGroup) -> str:
    values = group.partition_values.items()
    return ", ".join(f"{name}={'null' if text is None else text}" for name, text in values)


def _layout(made: ClusteringPlan) -> Report:
    """Show the prefix of the layout, and its workload."""
    lines = []
    if made.prefix:
        names = ", ".join(quote_path(made.columns[number].logical) for number in made.prefix)
        lines.append(
            f"files of single values of {names}, as far as they keep a quarter of the size"
        )
    if made.readers is not None:
        lines.append(f"fitted to a workload: {_asked(made.readers)}")
    lines += [
        f"not fitted to {one.predicates} predicate(s), {one.share:.1%} of the workload, as each of"
        f" them {one.reason}"
        for one in (made.fitted.left_out if made.fitted else ())
    ]
    return tuple(map(Line, lines))


def _asked(readers: FittedWorkload) -> str:
    count = len(readers.predicates)
    return f"{count} predicate(s)" if count else "readers of single values, by columns' weights"


def judged_plan(judged: Verdict | None, made: ClusteringPlan) -> Report:
    """Show a verdict, a plan, and what each query reads after it."""
    shown = None if judged is None else judged.shown
    rows: Report = ()
    if shown is not None and shown.plan is made and judged is not None:
        rows = brings(shown.prediction) if judged.readers == "workload" else ()
    return (*verdict(judged), *plan(made), *rows)


def brings(found: Prediction) -> Report:
    """Show what the mean query and each query open before and after a plan."""
    asked = (
        (
            row.where,
            f"{row.share:.1%}",
            amount(row.files_before),
            amount(row.files_after),
            between(row.files_after_range, amount),
            render_size(round(row.bytes_before)),
            render_size(round(row.bytes_after)),
            between(row.bytes_after_range, size),
        )
        for row in found.predicates
    )
    return (
        _ranges(found),
        *remarks(found.cannot_prune, found.not_usable, found.asked_at),
        *listing(_READS, asked),
    )


def _ranges(found: Prediction) -> Line:
    """Show what the mean query opens, with the range of nine in ten cases, and the source."""
    files, size_bytes = found.files_after_range, found.bytes_after_range
    source = (
        "sampled rows"
        if found.is_sampled
        else "the bounds in the log alone, which do not say how columns depend on each other"
    )
    return Line(
        f"a mean query opens {size(found.bytes_after)} in {amount(found.files_after)} files"
        f" instead of {size(found.bytes_before)} in {amount(found.files_before)}; in nine of ten"
        f" cases {between(size_bytes, size)} in {between(files, amount)} files (from {source})"
    )


def explanation(found: Sequence[Explained]) -> Report:
    """Show the number of files per decision and reason, with examples."""
    rows = (
        (one.decision, one.reason, str(one.files), render_size(one.size_bytes), one.detail)
        for one in found
    )
    examples = ((one.reason, path) for one in found for path in one.paths)
    return (
        *listing(("decision", "reason", "files", "size", "detail"), rows),
        *listing(("reason", "some of the files"), examples),
    )


def explained_files(rows: Sequence[Mapping[str, Any]]) -> Report:
    """Show the planner's decision per file."""
    names = ("path", "decision", "reason", "detail")
    return tuple(listing(names, ([row[name] for name in names] for row in rows)))
