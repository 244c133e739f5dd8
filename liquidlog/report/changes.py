"""Reports of commands that write: what they did, or would do with --dry-run.

The report of a dry run never says that something was done; each one contains "would".
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from liquidlog.foresee.reads import Prediction
from liquidlog.foresee.verdict import Verdict
from liquidlog.log.checkpointing import Checkpointed
from liquidlog.operations.define import DroppedFeature
from liquidlog.operations.planned import MigrationNotice
from liquidlog.operations.writes import Appended
from liquidlog.plan import ClusteringPlan, RewriteResult
from liquidlog.report.layout import Grid, Line, Report, listing, pairs, verdict
from liquidlog.report.plans import brings, plan
from liquidlog.spec.text import NOT_MEASURED, render_size, rough_duration

_NOTHING_DONE: Final = "nothing was written"


def _nothing(why: str, *, dry_run: bool) -> Report:
    return (Line(f"{'would change nothing' if dry_run else 'nothing to do'}: {why}"),)


def _done(did: str, would: str, *, dry_run: bool) -> Report:
    return (Line(f"{would}; {_NOTHING_DONE}" if dry_run else did),)


def created(result: Mapping[str, Any], *, dry_run: bool) -> Report:
    """Show that a table was or would be created."""
    version = f"version {result['version']}"
    would = f"the table would be created, with {version}"
    return _done(f"created, {version}", would, dry_run=dry_run)


def appended(result: Appended, *, dry_run: bool) -> Report:
    """Show what an append did."""
    what, version = f"{result.rows} rows in {result.files} file(s)", result.version
    if not result.files:
        return _nothing(f"there are no rows; the version is {version}", dry_run=dry_run)
    would = f"would append {what}, as version {version}"
    return _done(f"version {version}: {what} appended", would, dry_run=dry_run)


def clustered(
    result: Mapping[str, Any], *, names: Sequence[str] | None, is_new: bool, dry_run: bool
) -> Report:
    """Show which version has the clustering columns `names`, None for no columns."""
    has, have = "has no clustering columns", "have no clustering columns"
    if names is not None:
        columns = ", ".join(names)
        has, have = f"is clustered by {columns}", f"be clustered by {columns}"
    return altered(result, has=has, have=have, is_new=is_new, dry_run=dry_run)


def altered(
    result: Mapping[str, Any], *, has: str, have: str, is_new: bool, dry_run: bool
) -> Report:
    """Show the version that `has` a change, or would `have` it."""
    version = f"version {result['version']}"
    if not is_new:
        return _nothing(f"{version} already {has}", dry_run=dry_run)
    would = f"{version} would {have}"
    return _done(f"{version} {has}; no file was rewritten", would, dry_run=dry_run)


def dropped_feature(result: DroppedFeature, *, dry_run: bool) -> Report:
    """Show the version that no longer has a feature, and the protocol there."""
    protocol = result.protocol
    features = ", ".join(protocol.writer_features or ())
    says = f"({protocol.min_reader_version}, {protocol.min_writer_version})"
    says += f" with {features}" if features else ""
    domains = ", ".join(result.removed_domains)
    removed = "would remove" if dry_run else "removed"
    gone = (Line(f"{removed} the domains {domains}"),) if domains else ()
    of, feature = f"version {result.version}", result.feature
    did = f"{of} does not have {feature}; its protocol is {says}"
    would = f"{of} would not have {feature}; its protocol would be {says}"
    return (*gone, *_done(did, would, dry_run=dry_run))


def checkpointed(result: Checkpointed, *, dry_run: bool) -> Report:
    """Show whether a checkpoint was or would be written."""
    of = f"version {result.version} ({result.files} files)"
    if not result.created:
        return _nothing(f"{of} already has a checkpoint", dry_run=dry_run)
    size = render_size(result.size_bytes or 0)
    would = f"would write a checkpoint of {of}: {size}"
    return _done(f"checkpoint of {of} written: {size}", would, dry_run=dry_run)


def orphans(result: Mapping[str, Any], *, gone: int, dry_run: bool) -> Report:
    """Show orphans; `gone` of them were or would be deleted."""
    if not result["files"]:
        nothing = "would delete nothing, there are " if dry_run else ""
        return (Line(f"{nothing}no orphans: every rewrite of this table has ended and cleaned up"),)
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
        end = f"{nothing}: there is no file that no version of the last {retention} needs"
    else:
        done = "would delete" if dry_run else "deleted"
        end = f"{done} {found}, which no version of the last {retention} needs"
    kept = (
        Line(f"kept {one.files} files of {render_size(one.size_bytes)}: {one.reason}")
        for one in result["kept"]
    )
    if dry_run:
        end += "; nothing was deleted"
    listed = listing(("path", "size", "modified", "reason"), rows) if result["files"] else ()
    return (*listed, *kept, Line(end))


def optimized(result: Mapping[str, Any]) -> Report:
    """Show what an OPTIMIZE did in each round, with Delta's metric names."""
    if "rounds" not in result:
        return _optimized(result)
    end = Line(
        f"{len(result['rounds'])} round(s), {result['rows_verified']} rows verified;"
        f" the average depth is {_depth(result['average_depth'])}"
    )
    in_all = _reconciled(result, "were") if len(result["rounds"]) > 1 else ()
    return (*(part for one in result["rounds"] for part in _optimized(one)), end, *in_all)


def _optimized(result: Mapping[str, Any]) -> Report:
    if not result["groups"]:
        return (Line("nothing to do: no file needs rewriting"),)
    head = Line(
        f"committed {len(result['groups'])} group(s) as version(s) {_listed(result['versions'])} in"
        f" {result['seconds']} s; {result['rows_verified']} rows verified"
    )
    unproved = [group["group_id"] for group in result["groups"] if "read_back" in group]
    warned = (Line(f"{len(unproved)} group(s) were not read back"),) if unproved else ()
    return (head, *_reconciled(result, "were"), *warned, *pairs(result["metrics"]))


def _reconciled(result: Mapping[str, Any], were: str) -> Report:
    """Show how many rows were deleted from outputs because others had deleted them."""
    found = result["reconciled"]
    if not found["rows"]:
        return ()
    rows = f"{found['rows']} row(s) that version(s) {_listed(found['versions'])} deleted meanwhile"
    if found["files"] is None:
        return (
            Line(f"{rows} {were} to be deleted from the outputs too; they were not looked for"),
        )
    size = render_size(found["bytes_read"])
    where = f"{found['files']} output(s)"
    return (Line(f"{rows} {were} deleted from {where}: {size} read in {found['seconds']} s"),)


def migrated(result: Mapping[str, Any]) -> Report:
    """Show what a migration did."""
    head = Line(
        f"version {_listed(result['versions'])} is clustered by"
        f" {', '.join(result['clustering_columns'])} and no longer partitioned by"
        f" {', '.join(result['partition_columns'])}"
    )
    return (head, *(_optimized(result) if result["groups"] else ()))


def would_migrate(
    made: ClusteringPlan,
    predicted: Prediction | None,
    notice: MigrationNotice,
    result: Mapping[str, Any],
) -> Report:
    """Show what a migration would commit, its plan, what queries would read, and its question."""
    if not made.groups:
        version = _listed(result["versions"])
        head = Line(f"would change the definition only, as version {version}; {_NOTHING_DONE}")
    else:
        head = _would_commit(made, result, "would commit")
    shown = () if predicted is None else brings(predicted)
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
        why = f"no round would gain enough, the average depth is {depth}"
        return _nothing(why, dry_run=True)
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
    """Show a result document."""
    names = (
        *("group", "rows", "files out", "size", "shuffled", "seconds"),
        *("sample", "map", "shuffle", "write", "verify"),
    )
    rows = []
    for group in result.groups:
        costs = group.costs
        seconds = (costs.sample_seconds, costs.map_seconds, costs.shuffle_seconds)
        rows.append(
            (
                str(group.group_id),
                str(group.rows_written),
                str(len(group.outputs)),
                render_size(sum(file.size_bytes for file in group.outputs)),
                render_size(costs.shuffled_bytes),
                f"{group.seconds:.1f}",
                *(
                    f"{value:.1f}"
                    for value in (*seconds, costs.write_seconds, costs.verify_seconds)
                ),
            )
        )
    note = Line("the last four are seconds of tasks, added up over all cores")
    return (Grid(names, rows), note)


def would_rewrite(made: ClusteringPlan, finished: Sequence[int]) -> Report:
    """Show which groups of a plan a run would rewrite: all but the `finished` ones."""
    missing = [group for group in made.groups if group.group_id not in set(finished)]
    files = sum(len(group.inputs) for group in missing)
    size = render_size(sum(group.size_bytes for group in missing))
    head = Line(
        f"would rewrite {len(missing)} group(s): {files} files of {size};"
        f" {len(finished)} group(s) are in the result already; {_NOTHING_DONE}"
    )
    rows = (
        (
            str(group.group_id),
            str(len(group.inputs)),
            render_size(group.size_bytes),
            str(group.expected_outputs),
        )
        for group in missing
    )
    return (head, *listing(("group", "files in", "size", "files out"), rows))


def committed(result: Mapping[str, Any], *, dry_run: bool) -> Report:
    """Show how many groups of a plan were committed, now and before."""
    groups, before = len(result["committed_groups"]), len(result["skipped_groups"])
    versions = _listed(result["versions"]) or "none"
    what = f"{groups} group(s), version(s) {versions}; {before} group(s)"
    if dry_run:
        head = Line(f"would commit {what} are in the log already; {_NOTHING_DONE}")
        return (head, *_reconciled(result, "would have"))
    head = Line(f"committed {what} were committed before")
    return (head, *_reconciled(result, "were"))


def _listed(versions: Sequence[int]) -> str:
    return ", ".join(map(str, versions))


def applied_advice(versions: Sequence[int], *, dry_run: bool) -> Report:
    """Show which versions have the advised columns and properties."""
    if not versions:
        return _nothing("the table keeps its columns and properties", dry_run=dry_run)
    listed = " and ".join(f"version {version}" for version in versions)
    did = f"columns and properties are set, as {listed}; no file was rewritten"
    would = f"columns and properties would be set, as {listed}"
    return _done(did, would, dry_run=dry_run)
