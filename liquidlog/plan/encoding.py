"""Plans and results as bytes: encoded, decoded, told apart, and bound to each other by a digest."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from liquidlog.errors import DocumentError
from liquidlog.plan.documents import (
    FORMAT_VERSION,
    MIGRATING_FORMAT_VERSION,
    PARTITIONED_FORMAT_VERSION,
    RESULT_FORMAT_VERSION,
    ClusteringPlan,
    RewriteResult,
    RewrittenGroup,
)
from liquidlog.plan.files import (
    InputFiles,
    KeptFiles,
    RewriteGroup,
    SkippedFiles,
    repeated_inputs,
    repeated_message,
)
from liquidlog.spec.actions import UNREADABLE

_FILES: Final = b"-0"
"""Stands for a list of files while a document is made; no integer is written like this."""

_FIELD_OF_FILES: Final = re.compile(
    rb'^(?P<indent> *)"\w+": (?=%b,?$)' % _FILES, flags=re.MULTILINE
)


def encode_plan(plan: ClusteringPlan) -> bytes:
    """Return the plan as an indented JSON document; inverse of decode_plan."""
    return b"".join(plan_pieces(plan))


def plan_pieces(plan: ClusteringPlan) -> Iterator[bytes]:
    """Yield the document of a plan piece by piece: a large one is never in memory as a whole.

    It is indented, but for files, which are a line each.
    """
    lists: list[InputFiles | KeptFiles | SkippedFiles] = []

    def apart(files: InputFiles | KeptFiles | SkippedFiles) -> msgspec.Raw:
        lists.append(files)
        return msgspec.Raw(_FILES)

    document = msgspec.json.format(msgspec.json.encode(plan, enc_hook=apart), indent=2)
    # No text of the document has a line end in it, so a line is a field, never part of a text.
    written = 0
    for field, files in zip(_FIELD_OF_FILES.finditer(document), lists, strict=True):
        yield document[written : field.end()] + b"["
        yield from files.lines(b"\n" + field["indent"] + b"  ")
        yield b"\n" + field["indent"] + b"]" if files else b"]"
        written = field.end() + len(_FILES)
    yield document[written:] + b"\n"


def decode_plan(content: bytes, *, where: str) -> ClusteringPlan:
    """Return the plan in a document."""
    versions = (FORMAT_VERSION, PARTITIONED_FORMAT_VERSION, MIGRATING_FORMAT_VERSION)
    _check_head(content, where, kind="a plan", expected=versions)
    try:
        plan = msgspec.json.decode(content, type=ClusteringPlan, dec_hook=_files)
    except UNREADABLE as error:
        raise DocumentError(where, f"is not a plan: {error}") from error
    repeated = repeated_inputs(plan.groups)
    if repeated:
        raise DocumentError(where, repeated_message(repeated))
    for problem in _partition_problems(plan):
        raise DocumentError(where, problem)
    return plan


def plan_version(partition_columns: Sequence[str]) -> int:
    """Return the format version of plans of tables with these partition columns."""
    return PARTITIONED_FORMAT_VERSION if partition_columns else FORMAT_VERSION


def _partition_problems(plan: ClusteringPlan) -> Iterator[str]:
    columns = set(plan.partitioned_by)
    former = set(plan.formerly_partitioned_by)
    version = MIGRATING_FORMAT_VERSION if former else plan_version(plan.partitioned_by)
    if plan.format_version != version or (columns and former) or (former and not plan.terms):
        yield (
            f"has format version {plan.format_version}, {len(columns)} partition columns and"
            f" {len(former)} former ones"
        )
    for group in plan.groups:
        if not group.inputs.have_values_of(former):
            listed = ", ".join(sorted(former)) or "no column"
            yield (
                f"has partition values of other columns than {listed} for inputs of group"
                f" {group.group_id}; plan again"
            )
        if set(group.partition_values) != columns:
            found = ", ".join(sorted(group.partition_values)) or "no column"
            expected = ", ".join(sorted(columns)) or "no column"
            yield (
                f"has partition values of {found} for group {group.group_id}, expected values of"
                f" {expected}; plan again"
            )


def encode_rewritten_group(group: RewrittenGroup) -> bytes:
    """Return one line of a result document, including the newline."""
    return msgspec.json.encode(group) + b"\n"


def rewritten_group_begins(plan_id: str) -> bytes:
    """Return the bytes that begin every line of a plan's result document."""
    head = {"format_version": RESULT_FORMAT_VERSION, "plan_id": plan_id}
    return msgspec.json.encode(head)[:-1] + b","


def decode_result(content: bytes, *, where: str) -> RewriteResult:
    """Return the result in a document that has one line per group."""
    groups = []
    whole = _head(content)
    if whole is not None and whole.kind == "a plan":
        raise DocumentError(where, "is a plan, not a result; are the two swapped?")
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        place = f"{where} line {number}"
        _check_head(line, place, kind="a result", expected=(RESULT_FORMAT_VERSION,))
        if _Copies.in_line(line):
            raise DocumentError(
                place,
                "says that row groups were copied byte by byte, which an earlier release did and"
                " this one cannot prove; run the plan again, to another result document",
            )
        try:
            groups.append(msgspec.json.decode(line, type=RewrittenGroup))
        except UNREADABLE as error:
            raise DocumentError(place, f"is not a result: {error}") from error
    plan_ids = {group.plan_id for group in groups}
    if len(plan_ids) > 1:
        raise DocumentError(where, f"mixes the results of {len(plan_ids)} plans")
    return RewriteResult(plan_id=next(iter(plan_ids), ""), groups=tuple(groups))


def plan_document(plan: ClusteringPlan) -> Mapping[str, object]:
    """Return the plan as plain JSON values."""
    document: Mapping[str, object] = msgspec.to_builtins(plan, enc_hook=list)
    return document


class _Head(msgspec.Struct):
    format_version: object = None
    group_id: object = None
    groups: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    policy: object = None

    @property
    def kind(self) -> str | None:
        if self.format_version is None:
            return None
        if self.groups is not msgspec.UNSET:
            return "a plan"
        return None if self.group_id is None else "a result"

    @property
    def is_printed(self) -> bool:
        """Whether the settings say who decided them, as `--json` prints a plan."""
        settings = self.policy.values() if isinstance(self.policy, dict) else ()
        return any(isinstance(setting, dict) for setting in settings)


class _Copies(msgspec.Struct):
    """The field by which a result of an earlier release says that it holds copied row groups."""

    copied: object = None

    @staticmethod
    def in_line(line: bytes) -> bool:
        try:
            return msgspec.json.decode(line, type=_Copies).copied is not None
        except UNREADABLE:
            return False


def _check_head(content: bytes, where: str, *, kind: str, expected: tuple[int, ...]) -> None:
    found = _head(content)
    if found is None and kind == "a plan":
        found = _head(content.partition(b"\n")[0])
    if found is not None and found.kind not in {None, kind}:
        raise DocumentError(where, f"is {found.kind}, not {kind}; are the two swapped?")
    version = None if found is None else found.format_version
    if version is not None and version not in expected:
        *others, last = map(str, expected)
        listed = f"{', '.join(others)} and {last}" if others else last
        raise DocumentError(
            where,
            f"has format version {version}, and this release reads {kind} of {listed} only;"
            " make it again with this release",
        )
    if found is None or found.kind is None:
        maker = "liquidlog plan TABLE -o FILE" if kind == "a plan" else "liquidlog run PLAN -o FILE"
        raise DocumentError(where, f"is not {kind}; {maker} writes one")
    if found.is_printed:
        detail = "is a plan as --json prints it; liquidlog plan TABLE -o FILE saves one to run"
        raise DocumentError(where, detail)


def _head(content: bytes) -> _Head | None:
    try:
        return msgspec.json.decode(content, type=_Head)
    except UNREADABLE:
        return None


def _files(
    kind: type[InputFiles | KeptFiles | SkippedFiles], rows: object
) -> InputFiles | KeptFiles | SkippedFiles:
    return kind.from_document(rows)


def rewrite_digest(plan: ClusteringPlan, planned: RewriteGroup, group: RewrittenGroup) -> str:
    """Return the SHA-256 of a planned group, its plan's terms and its result, as 64 hex digits.

    The digest binds the result to the plan: the run that wrote the outputs leaves it in the table's
    directory, and a plan or result edited since then has another digest. The table's address is
    left out, since machines may mount the table at different places, and so is what a plan only
    says to people.
    """
    terms = dict(
        plan_document(
            msgspec.structs.replace(plan, groups=(), skipped=SkippedFiles.of(), table_uri="")
        )
    )
    del terms["decided_by"], terms["notes"]
    digest = hashlib.sha256()
    for document in (terms, planned, group):
        digest.update(msgspec.json.encode(document, enc_hook=list))
        digest.update(b"\n")
    return digest.hexdigest()
