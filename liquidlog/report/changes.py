"""Reports of advice, of plans, of rewrites, done or planned, and of commands that write.

The report of a dry run contains "would"; it never says that something was done. The document of a
planned rewrite has null for what only the rewrite can tell.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, to_builtins

from liquidlog.advice import SAVED_AS, Advice, Backtest, Measured
from liquidlog.foresee.verdict import Prediction, Verdict
from liquidlog.log.history import Checkpointed
from liquidlog.operations.batches import ReconciledRows, reconcile_limits
from liquidlog.operations.optimize import (
    CommitReport,
    Round,
    average_depth,
    default_groups_per_commit,
    depth_after_round,
    expected_metrics,
)
from liquidlog.operations.planning import Explained, MigrationNotice
from liquidlog.operations.writes import Appended, DroppedFeature
from liquidlog.plan import (
    RESULT_FORMAT_VERSION,
    ClusteringPlan,
    RewriteGroup,
    RewriteResult,
    RewrittenGroup,
)
from liquidlog.report.jsonable import policy_document, settings_text
from liquidlog.report.printing import (
    Grid,
    Line,
    Part,
    Report,
    between,
    listing,
    pairs,
    remarks,
    shortened,
    verdict,
)
from liquidlog.spec.schema import Path, quote_path
from liquidlog.spec.text import NOT_MEASURED, amount, render_size, rough_duration
from liquidlog.table import Table

if TYPE_CHECKING:
    pass


_CURVE_ADVICE: Final = "--curve kd would write narrower files; docs/curves.md says when to use it"


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
    narrow = (
        f"{kept} files ({render_size(kept_bytes)}) are narrow already and join the new cubes as"
        " they are"
    )
    policy = policy_document(made)
    is_remembered = any(setting["from"] == "property" for setting in policy.values())
    settings = settings_text(policy) if is_remembered else ""
    whose = "partition" if made.partitioned_by else "cube"
    groups = (
        (
            group.group_id,
            _partition(group) if made.partitioned_by else group.zcube_id,
            len(group.inputs),
            render_size(group.size_bytes),
            group.expected_outputs,
        )
        for group in made.groups
    )
    by_reason = made.skipped.columns.group_by("reason", use_threads=False)
    summed = by_reason.aggregate([("size_bytes", "count"), ("size_bytes", "sum")])
    skipped = (
        (reason, files, render_size(size_bytes))
        for reason, files, size_bytes in zip(
            *(column.to_pylist() for column in summed.columns), strict=True
        )
    )
    return (
        head,
        *([Line(narrow)] if kept else []),
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
    lines = []
    if made.prefix:
        names = ", ".join(quote_path(made.columns[number].logical) for number in made.prefix)
        lines.append(f"each file holds one value of {names}, if it keeps a quarter of the size")
    if made.readers is not None:
        count = len(made.readers.predicates)
        queries = f"{count} predicate(s)" if count else "queries for one value, by column weights"
        lines.append(f"fitted to a workload: {queries}")
    lines += [
        f"not fitted to {one.predicates} predicate(s), {one.share:.1%} of the workload: each"
        f" {one.reason}"
        for one in (made.fitted.left_out if made.fitted else ())
    ]
    return tuple(map(Line, lines))


def judged_plan(judged: Verdict, made: ClusteringPlan) -> Report:
    """Show a verdict and a plan; if the verdict is on this plan, also what each query reads."""
    shown = judged.shown
    is_own = shown is not None and shown.plan is made and judged.readers == "workload"
    reads = predicted_reads(shown.prediction) if shown is not None and is_own else ()
    return (*verdict(judged), *plan(made), *reads)


def predicted_reads(found: Prediction) -> Report:
    """Show what the mean query and each query read before and after a plan."""
    source = (
        "sampled rows"
        if found.is_sampled
        else "the bounds in the log, which do not show how columns depend on each other"
    )
    head = Line(
        f"a typical query reads {render_size(found.bytes_after)} in {amount(found.files_after)}"
        f" files instead of {render_size(found.bytes_before)} in {amount(found.files_before)}; in"
        f" nine of ten cases {between(found.bytes_after_range, render_size)} in"
        f" {between(found.files_after_range, amount)} files (predicted from {source})"
    )
    names = ("predicate", "share", "files before", "after", "range", "bytes before")
    rows = (
        (
            row.where,
            f"{row.share:.1%}",
            amount(row.files_before),
            amount(row.files_after),
            between(row.files_after_range, amount),
            render_size(row.bytes_before),
            render_size(row.bytes_after),
            between(row.bytes_after_range, render_size),
        )
        for row in found.predicates
    )
    return (
        head,
        *remarks(found.cannot_prune, found.not_usable, found.asked_at),
        *listing((*names, "after", "range"), rows),
    )


def explanation(found: Sequence[Explained]) -> Report:
    rows = (
        (one.decision, one.reason, one.files, render_size(one.size_bytes), one.detail)
        for one in found
    )
    examples = ((one.reason, path) for one in found for path in one.paths)
    return (
        *listing(("decision", "reason", "files", "size", "detail"), rows),
        *listing(("reason", "some of the files"), examples),
    )


def explained_files(rows: Sequence[Mapping[str, Any]]) -> Report:
    names = ("path", "decision", "reason", "detail")
    return tuple(listing(names, ([row[name] for name in names] for row in rows)))


_NOTHING_DONE: Final = "nothing was written"


def _nothing(why: str, *, dry_run: bool) -> Report:
    return (Line(f"{'would change nothing' if dry_run else 'nothing to do'}: {why}"),)


def _done(did: str, would: str, *, dry_run: bool) -> Report:
    return (Line(f"{would}; {_NOTHING_DONE}" if dry_run else did),)


def created(result: Mapping[str, Any], *, dry_run: bool) -> Report:
    version = f"version {result['version']}"
    would = f"the table would be created, with {version}"
    return _done(f"created, {version}", would, dry_run=dry_run)


def appended(result: Appended, *, dry_run: bool) -> Report:
    what, version = f"{result.rows} rows in {result.files} file(s)", result.version
    if not result.files:
        return _nothing(f"there are no rows; the version is {version}", dry_run=dry_run)
    would = f"would append {what}, as version {version}"
    return _done(f"version {version}: {what} appended", would, dry_run=dry_run)


def altered(result: Mapping[str, Any], *, what: str, is_new: bool, dry_run: bool) -> Report:
    """Show which version has or would have `what` a command sets."""
    version = f"version {result['version']}"
    if not is_new:
        return _nothing(f"{version} already has {what}", dry_run=dry_run)
    did = f"{version} has {what}; no file was rewritten"
    return _done(did, f"{version} would have {what}", dry_run=dry_run)


def dropped_feature(result: DroppedFeature, *, dry_run: bool) -> Report:
    """Show the version that no longer has a feature, and the protocol there."""
    features = ", ".join(result.protocol.writer_features or ())
    says = f"({result.protocol.min_reader_version}, {result.protocol.min_writer_version})"
    says += f" with {features}" if features else ""
    domains = ", ".join(result.removed_domains)
    removed = "would remove" if dry_run else "removed"
    gone = (Line(f"{removed} the domains {domains}"),) if domains else ()
    did = f"version {result.version} does not have {result.feature}; its protocol is {says}"
    would = did.replace("does not have", "would not have").replace("is (", "would be (")
    return (*gone, *_done(did, would, dry_run=dry_run))


def checkpointed(result: Checkpointed, *, dry_run: bool) -> Report:
    of = f"version {result.version} ({result.files} files)"
    if not result.created:
        return _nothing(f"{of} already has a checkpoint", dry_run=dry_run)
    size = render_size(result.size_bytes or 0)
    would = f"would write a checkpoint of {of}: {size}"
    return _done(f"checkpoint of {of} written: {size}", would, dry_run=dry_run)


def orphans(result: Mapping[str, Any], *, gone: int, dry_run: bool) -> Report:
    """Show orphans; `gone` of them were or would be deleted."""
    if not result["files"]:
        nothing = "would delete nothing: there are " if dry_run else ""
        return (Line(f"{nothing}no orphans; every rewrite of this table has ended and cleaned up"),)
    rows = (
        (
            row["path"],
            render_size(row["size_bytes"]),
            row["modified"],
            "yes" if row["orphan"] else "no",
            row["reason"],
        )
        for row in result["files"]
    )
    found = f"{result['orphan_count']} orphans of {render_size(result['orphan_bytes'])}"
    done = f"{gone} deleted" if result["deleted"] else "delete them with --delete"
    would = f"{found}: would delete {gone}; nothing was deleted"
    end = would if dry_run else f"{found}: {done}"
    return (*listing(("path", "size", "modified", "orphan", "reason"), rows), Line(end))


def vacuumed(result: Mapping[str, Any], *, dry_run: bool) -> Report:
    """Show the files that a vacuum deleted, and why it kept others."""
    rows = (
        (row["path"], render_size(row["size_bytes"]), row["modified"], row["reason"])
        for row in result["files"]
    )
    retention = rough_duration(result["retention_ms"])
    found = f"{result['deleted_files']} files of {render_size(result['deleted_bytes'])}"
    if not result["deleted_files"]:
        nothing = "would delete nothing" if dry_run else "nothing to do"
        end = f"{nothing}: the versions of the last {retention} need all files"
    else:
        done = "would delete" if dry_run else "deleted"
        end = f"{done} {found}, which no version of the last {retention} needs"
    kept = (
        Line(f"kept {one.files} files of {render_size(one.size_bytes)}: {one.reason}")
        for one in result["kept"]
    )
    if dry_run:
        end += "; nothing was deleted"
    return (*listing(("path", "size", "modified", "reason"), rows), *kept, Line(end))


def optimized(result: Mapping[str, Any]) -> Report:
    """Show what an OPTIMIZE did, round by round if it has rounds, with Delta's metric names."""
    if "rounds" in result:
        end = Line(
            f"{len(result['rounds'])} round(s), {result['rows_verified']} rows verified;"
            f" the average depth is {_depth(result['average_depth'])}"
        )
        in_all = _reconciled(result) if len(result["rounds"]) > 1 else ()
        return (*(part for one in result["rounds"] for part in optimized(one)), end, *in_all)
    if not result["groups"]:
        return (Line("nothing to do: no file needs rewriting"),)
    head = Line(
        f"committed {len(result['groups'])} group(s) as version(s) {_listed(result['versions'])} in"
        f" {result['seconds']} s; {result['rows_verified']} rows verified"
    )
    unproved = sum("read_back" in group for group in result["groups"])
    warned = (Line(f"{unproved} group(s) were not read back"),) if unproved else ()
    return (head, *_reconciled(result), *warned, *pairs(result["metrics"]))


def _reconciled(result: Mapping[str, Any]) -> Report:
    """Show how many rows were deleted from outputs because others had deleted them."""
    found = result["reconciled"]
    if not found["rows"]:
        return ()
    done = "a commit would delete them from the outputs too"
    if found["files"] is not None:
        size = render_size(found["bytes_read"])
        done = f"they were deleted from {found['files']} output(s) too"
        done += f": {size} read in {found['seconds']} s"
    versions = _listed(found["versions"])
    return (Line(f"version(s) {versions} deleted {found['rows']} row(s) meanwhile; {done}"),)


def migrated(result: Mapping[str, Any]) -> Report:
    head = Line(
        f"version {_listed(result['versions'])} is clustered by"
        f" {', '.join(result['clustering_columns'])} and no longer partitioned by"
        f" {', '.join(result['partition_columns'])}"
    )
    return (head, *(optimized(result) if result["groups"] else ()))


def would_migrate(
    made: ClusteringPlan,
    predicted: Prediction | None,
    notice: MigrationNotice,
    result: Mapping[str, Any],
) -> Report:
    """Show what a migration would commit, what queries would read, and what it would ask."""
    head = _would_commit(made, result, "would commit")
    if not made.groups:
        version = _listed(result["versions"])
        head = Line(f"would change the definition only, as version {version}; {_NOTHING_DONE}")
    shown = () if predicted is None else predicted_reads(predicted)
    return (head, *plan(made), *shown, Line(f"would ask first: {notice}"))


def _depth(depth: float | None) -> str:
    return NOT_MEASURED if depth is None else f"{depth:.2f}"


def would_optimize(
    judged: Verdict | None, made: ClusteringPlan, result: Mapping[str, Any]
) -> Report:
    """Show the verdict on an OPTIMIZE, its first commit, and its plan."""
    if "rounds" not in result:
        return (*verdict(judged), _would_commit(made, result, "would commit"), *plan(made))
    if not result["rounds"]:
        depth = _depth(result["average_depth"])
        return _nothing(f"no round would gain enough; the average depth is {depth}", dry_run=True)
    first = result["rounds"][0]
    gain = Line(f"the average depth would be {first['average_depth']:.2f} after the first round")
    would = _would_commit(made, first, "the first round would commit")
    return (*verdict(judged), would, gain, *plan(made))


def _would_commit(made: ClusteringPlan, result: Mapping[str, Any], would: str) -> Line:
    if not result["groups"]:
        return Line("would change nothing: no file needs rewriting")
    files = sum(len(group.inputs) for group in made.groups)
    rows = "" if result["rows_verified"] is None else f", {result['rows_verified']} rows"
    return Line(
        f"{would} {len(result['groups'])} group(s) as version(s) {_listed(result['versions'])}:"
        f" {files} files of {render_size(made.size_bytes)}{rows}; {_NOTHING_DONE}"
    )


def rewritten(result: RewriteResult) -> Report:
    passes = ("sample", "map", "shuffle", "write", "verify")
    rows = []
    for group in result.groups:
        seconds = [getattr(group.costs, f"{name}_seconds") for name in passes]
        row = (
            str(group.group_id),
            str(group.rows_written),
            str(len(group.outputs)),
            render_size(sum(file.size_bytes for file in group.outputs)),
            render_size(group.costs.shuffled_bytes),
        )
        rows.append((*row, *(f"{value:.1f}" for value in (group.seconds, *seconds))))
    note = Line("the last four columns are seconds of tasks, summed over all cores")
    return (
        Grid(("group", "rows", "files out", "size", "shuffled", "seconds", *passes), rows),
        note,
    )


def would_rewrite(made: ClusteringPlan, finished: Sequence[int]) -> Report:
    """Show which groups a run would rewrite: all except the `finished` ones."""
    missing = [group for group in made.groups if group.group_id not in finished]
    files = sum(len(group.inputs) for group in missing)
    size = render_size(sum(group.size_bytes for group in missing))
    head = Line(
        f"would rewrite {len(missing)} group(s): {files} files of {size};"
        f" {len(finished)} group(s) are in the result already; {_NOTHING_DONE}"
    )
    rows = (
        (one.group_id, len(one.inputs), render_size(one.size_bytes), one.expected_outputs)
        for one in missing
    )
    return (head, *listing(("group", "files in", "size", "files out"), rows))


def committed(result: Mapping[str, Any], *, dry_run: bool) -> Report:
    groups, before = len(result["committed_groups"]), len(result["skipped_groups"])
    versions = _listed(result["versions"]) or "none"
    what = f"{groups} group(s), version(s) {versions}; {before} group(s)"
    would = f"would commit {what} are in the log already"
    done = _done(f"committed {what} were committed before", would, dry_run=dry_run)
    return (*done, *_reconciled(result))


def _listed(versions: Sequence[int]) -> str:
    return ", ".join(map(str, versions))


def applied_advice(versions: Sequence[int], *, dry_run: bool) -> Report:
    if not versions:
        return _nothing("the table keeps its columns and properties", dry_run=dry_run)
    listed = " and ".join(f"version {version}" for version in versions)
    did = f"columns and properties are set, as {listed}; no file was rewritten"
    would = f"columns and properties would be set, as {listed}"
    return _done(did, would, dry_run=dry_run)


_SHOWN: Final = 8
_CHANGES_NOTHING: Final = 0.0005
"""A percentage with one decimal does not show a smaller share."""


def advice(found: Advice) -> Report:
    save = f"save this advice as {SAVED_AS} with -o first: it says what the layout is fitted to"
    losers = (
        (
            shortened(one.where, 80),
            f"{one.share:.1%}",
            amount(one.files_now),
            amount(one.files_after),
            render_size(one.bytes_now),
            render_size(one.bytes_after),
        )
        for one in found.losers
    )
    return (
        *verdict(found.verdict, found.commands),
        *([Line(save)] if any(SAVED_AS in command for command in found.commands) else []),
        *map(Line, _backtest(found.backtest)),
        Line(f"now: {_columns(found.current.columns)}"),
        *_best(found),
        *_candidates(found.candidates),
        *listing(("column", "effect"), _marginal(found)),
        *listing(("longer wait", "share", "files", "after", "bytes", "after"), losers),
        *remarks(found.cannot_prune, found.not_usable, found.asked_at),
        *(Line(f"note: {note}") for note in found.notes),
        *([Line(str(found.protocol_change))] if found.protocol_change else []),
    )


def layout_text(one: Measured) -> str:
    of = one.candidate
    words = [_columns(of.columns)]
    if len(of.columns) > 1:
        words.append(f"along {of.curve.value}")
    if of.prefix:
        words.append(f"with the prefix {', '.join(map(quote_path, of.prefix))}")
    if of.is_fitted:
        words.append("fitted to the queries")
    return " ".join(words)


def _columns(paths: tuple[Path, ...]) -> str:
    names = ", ".join(map(quote_path, paths))
    return f"clustered by {names}" if names else "not clustered"


def _backtest(found: Backtest) -> Iterator[str]:
    if found.median_error is None:
        yield "no query records what it read, so no prediction was checked"
        return
    yield (
        f"back-test: {found.scans} recorded scans read {render_size(found.observed_bytes or 0)},"
        f" and {render_size(found.predicted_bytes or 0)} were predicted; the median error of a scan"
        f" is {found.median_error:.1%}"
    )
    yield from (f"note: {note}" for note in found.notes)


def _best(found: Advice) -> Iterator[Part]:
    if found.best is None:
        return
    what = "advised" if found.is_recommended else "the best layout"
    yield Line(f"{what}: {layout_text(found.best)}")
    older, newest = found.queries_older, found.queries_newest
    chosen = {
        "time": f"{older} older predicates chose it, the {newest} newest judge it",
        "shape": f"{older} predicates chose it, {newest} judge it",
        "none": "all predicates chose it and judge it, since they are few",
    }[found.parted_by]
    ends = found.interval
    range_ = f" ({ends.low:.1%} to {ends.high:.1%} in nine of ten cases)" if ends else ""
    yield Line(
        f"{chosen}: the judging queries read {found.current.read_share:.1%} of the table now and"
        f" {found.best.read_share:.1%} with it{range_}"
    )
    rows = "rows" if found.sample == "rows" else "rows made up from statistics"
    yield Line(f"measured on {found.sampled_rows} {rows} of {found.sampled_files} files")


def _candidates(candidates: tuple[Measured, ...]) -> Iterator[Part]:
    rows: list[tuple[object, ...]] = [
        (
            layout_text(one),
            render_size(one.candidate.max_file_bytes),
            one.files,
            f"{one.read_share:.1%}",
            f"{one.older_read_share:.1%}",
        )
        for one in candidates[:_SHOWN]
    ]
    if len(candidates) > _SHOWN:
        rows.append((f"and {len(candidates) - _SHOWN} more, which cost more",))
    names = ("layout", "file size", "files", "judging queries read", "choosing queries read")
    return listing(names, rows)


def _marginal(found: Advice) -> Iterator[tuple[str, str]]:
    own = () if found.best is None else found.best.candidate.columns
    for path, gain in found.columns.items():
        place = "" if path in own else " (not in the layout)"
        effect = "changes nothing"
        if gain is None:
            effect = NOT_MEASURED
        elif gain >= _CHANGES_NOTHING:
            effect = f"saves {gain:.1%} of the wait"
        elif gain <= -_CHANGES_NOTHING:
            effect = f"adds {-gain:.1%} to the wait"
        yield quote_path(path) + place, effect


def commit_policy(plan: ClusteringPlan, commits: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return each setting of a commit and who chose it; `commits` are the given settings."""
    limits = reconcile_limits(commits.get("max_reconciled_share"), commits.get("reconcile_limit"))
    most = commits.get("groups_per_commit") or default_groups_per_commit(plan)
    settings = (
        ("groups_per_commit", "groups_per_commit", most),
        ("max_reconciled_share", "max_reconciled_share", limits.max_share),
        ("reconcile_limit_bytes", "reconcile_limit", limits.limit_bytes),
    )
    return {
        name: {"value": value, "from": "option" if given in commits else "default"}
        for name, given, value in settings
    }


def reconciled_document(found: ReconciledRows) -> Mapping[str, Any]:
    """Return the document of rows that others deleted meanwhile; null is not known."""
    return {
        "rows": found.rows,
        "files": found.files,
        "bytes_read": found.bytes_read,
        "seconds": None if found.seconds is None else round(found.seconds, 3),
        "versions": found.versions,
    }


def round_document(
    plan: ClusteringPlan,
    report: CommitReport,
    metrics: Mapping[str, Any],
    seconds: float,
    commits: Mapping[str, Any],
) -> Mapping[str, Any]:
    """Return the document of an OPTIMIZE; `seconds` include planning."""
    costs = {group.group_id: group.costs for group in report.finished}
    proofs = _proofs(report)
    groups = [
        {**_group(plan, group_id, version), "costs": costs[group_id], **proofs[group_id]}
        for group_id, version in report.group_versions.items()
    ]
    return {
        "versions": report.versions,
        "groups": groups,
        "policy": {**policy_document(plan), **commit_policy(plan, commits)},
        "metrics": metrics,
        "rows_verified": report.rows_verified,
        "reconciled": reconciled_document(report.reconciled),
        "seconds": round(seconds, 3),
    }


def _group(plan: ClusteringPlan, group_id: int, version: int) -> Mapping[str, Any]:
    group = plan.groups[group_id]
    return {
        "group_id": group_id,
        "zcube_id": group.zcube_id,
        "version": version,
        "inputs": len(group.inputs),
    }


def migration_document(
    plan: ClusteringPlan,
    done: Mapping[str, Any],
    notice: MigrationNotice,
    predicted: Prediction | None,
) -> Mapping[str, Any]:
    change = notice.protocol_change
    protocol = None if change is None else {"before": change.before, "after": change.after}
    return {
        **done,
        "partition_columns": notice.partition_columns,
        "clustering_columns": [quote_path(column.logical) for column in plan.columns],
        "protocol_change": protocol,
        "prediction": predicted,
    }


def _proofs(report: CommitReport) -> Mapping[int, Mapping[str, Any]]:
    """Return `read_back` by group id, and nothing for a group with a whole proof."""
    return {
        group.group_id: {} if group.read_back is UNSET else {"read_back": group.read_back}
        for group in report.finished
    }


def rounds_document(
    opened: Table, plan: ClusteringPlan, rounds: Sequence[Round[Mapping[str, Any]]]
) -> Mapping[str, Any]:
    """Return the document of rounds, done or planned; `plan` is the plan of the first."""
    documents = [{**one.done, "average_depth": one.average_depth} for one in rounds]
    depth = rounds[-1].average_depth if rounds else average_depth(opened.opened, plan.policy.where)
    rows = [one["rows_verified"] for one in documents]
    found = (ReconciledRows(**one["reconciled"]) for one in documents)
    reconciled = reduce(ReconciledRows.plus, found, ReconciledRows())
    return {
        "versions": [version for one in documents for version in one["versions"]],
        "rounds": documents,
        "average_depth": depth,
        "rows_verified": None if None in rows else sum(rows),
        "reconciled": reconciled_document(reconciled),
        "seconds": round(sum(one["seconds"] for one in documents), 3),
    }


def committed_document(
    plan: ClusteringPlan, report: CommitReport, commits: Mapping[str, Any]
) -> Mapping[str, Any]:
    proofs = _proofs(report)
    return {
        "versions": report.versions,
        "committed_groups": report.committed_groups,
        "skipped_groups": report.skipped_groups,
        "groups": [
            {"group_id": group_id, "version": version, **proofs[group_id]}
            for group_id, version in report.group_versions.items()
        ],
        "reconciled": reconciled_document(report.reconciled),
        "policy": commit_policy(plan, commits),
    }


def would_do(
    opened: Table,
    made: ClusteringPlan,
    seconds: float,
    min_gain: float | None,
    commits: Mapping[str, Any],
) -> Mapping[str, Any]:
    """Return the document of a planned OPTIMIZE; `seconds` is the duration of planning.

    With a `min_gain`, it has only the first round, if that gains enough: later rounds depend on it.
    """
    first = _would_do_round(opened, made, seconds, commits)
    if min_gain is None:
        return first
    depth = average_depth(opened.opened, made.policy.where)
    after = depth_after_round(opened.opened, made, depth, min_gain)
    rounds = () if after is None else (Round(done=first, average_depth=after),)
    return rounds_document(opened, made, rounds)


def _would_do_round(
    opened: Table, made: ClusteringPlan, seconds: float, commits: Mapping[str, Any]
) -> Mapping[str, Any]:
    first = (opened.opened.seen_version or 0) + 1
    groups_per_commit = commits.get("groups_per_commit")
    most = groups_per_commit or default_groups_per_commit(made)
    versions = {group.group_id: first + n // most for n, group in enumerate(made.groups)}
    definition = [first] if made.is_migration and not made.groups else []
    return {
        "versions": definition or list(dict.fromkeys(versions.values())),
        "groups": [{**_group(made, *each), "costs": None} for each in versions.items()],
        "policy": {**policy_document(made), **commit_policy(made, commits)},
        "metrics": expected_metrics(opened.opened, made, {"groups_per_commit": groups_per_commit}),
        "rows_verified": made.live_rows,
        "reconciled": reconciled_document(ReconciledRows()),
        "seconds": round(seconds, 3),
    }


def would_run(made: ClusteringPlan, finished: RewriteResult) -> Mapping[str, Any]:
    """Return the document of a result: the finished groups, and the others as planned."""
    done = {group.group_id: to_builtins(group) for group in finished.groups}
    unknown = dict.fromkeys(RewrittenGroup.__struct_fields__)
    for name in ("read_back", "partition_values"):
        del unknown[name]  # only there if they say something
    planned = {
        group.group_id: {
            **unknown,
            **({"partition_values": group.partition_values} if made.partitioned_by else {}),
            "format_version": RESULT_FORMAT_VERSION,
            "plan_id": made.plan_id,
            "group_id": group.group_id,
            "rows_read": group.live_rows,
            "rows_written": group.live_rows,
        }
        for group in made.groups
    }
    return {"plan_id": made.plan_id, "groups": list({**planned, **done}.values())}
