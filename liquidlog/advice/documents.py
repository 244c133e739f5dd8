"""Advice as a document: saved, reviewed, and given to a plan."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from liquidlog.advice.advice import Advice
from liquidlog.advice.candidates import layout_arguments
from liquidlog.errors import DocumentError, UsageError
from liquidlog.plan import FittedWorkload
from liquidlog.spec.actions import UNREADABLE
from liquidlog.spec.schema import Path, quote_path, split_path

KIND: Final = "liquidlog advice"
FORMAT_VERSION: Final = 1


class AdvisedLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The layout in a document; columns as people write them."""

    columns: tuple[str, ...]
    prefix: tuple[str, ...]
    curve: str
    max_file_bytes: int
    fitted: bool


class AdviceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan takes of saved advice; the other fields are for people."""

    kind: str
    format_version: int
    table_uri: str
    table_id: str
    recommended: AdvisedLayout | None
    reason: str
    fitted_to: FittedWorkload | None = None


def encode_advice(advice: Advice) -> bytes:
    """Return advice as a document of indented JSON."""
    document = {"kind": KIND, "format_version": FORMAT_VERSION, **advice.document()}
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def decode_advice(data: bytes, *, where: str) -> AdviceDocument:
    """Return the advice in a document; `where` names it in errors."""
    try:
        head = msgspec.json.decode(data, type=dict[str, Any])
    except UNREADABLE as error:
        raise DocumentError(where, "is not JSON; advise -o writes such a document") from error
    if head.get("kind") != KIND:
        raise DocumentError(where, "is not advice; advise -o writes such a document")
    if head.get("format_version") != FORMAT_VERSION:
        raise DocumentError(
            where,
            f"is advice of format {head.get('format_version')!r}, and this release reads"
            f" {FORMAT_VERSION}; make it again with advise -o",
        )
    try:
        found = msgspec.json.decode(data, type=AdviceDocument)
    except msgspec.MsgspecError as error:
        raise DocumentError(where, f"is not advice as advise -o writes it: {error}") from error
    layout = found.recommended
    if layout is not None and layout.fitted != (found.fitted_to is not None):
        raise DocumentError(
            where, "says that its layout is fitted, but not to what, or the reverse"
        )
    return found


def plan_arguments(
    advised: AdviceDocument, *, table_id: str, columns: tuple[Path, ...], uri: str
) -> Mapping[str, Any]:
    """Return the arguments of a plan that makes the advised layout.

    Args:
        advised: The document.
        table_id: The id of the table to plan.
        columns: Its clustering columns.
        uri: Its address.
    """
    layout = advised.recommended
    if advised.table_id != table_id:
        raise UsageError(
            f"the advice is of the table {advised.table_uri}, not of {uri}; ask for advice on this"
            " one",
            table_uri=advised.table_uri,
        )
    if layout is None:
        raise UsageError(f"the advice recommends no other layout: {advised.reason}")
    wanted = tuple(split_path(name) for name in layout.columns)
    if wanted != columns:
        now = ", ".join(map(quote_path, columns))
        names = ",".join(layout.columns)
        raise UsageError(
            f"the advice is to cluster by {names}, and the table is"
            f" {f'clustered by {now}' if columns else 'not clustered'}; apply it first with"
            f" cluster-by {uri} {names}",
            columns=list(layout.columns),
        )
    prefix = tuple(split_path(name) for name in layout.prefix)
    return layout_arguments(wanted, prefix, layout.curve, layout.max_file_bytes)
