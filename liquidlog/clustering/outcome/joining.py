"""How files join the cube of a group: with which tags, and those that keep their bytes.

Source: Delta Spark, AddFile.Tags; PROTOCOL.md, "Add File and Remove File": an add of a live file
replaces what the log says of it.
"""

from collections.abc import Mapping, Sequence

import msgspec

from liquidlog.clustering.zcubes import PROVIDER
from liquidlog.errors import ResultMismatchError
from liquidlog.plan import ClusteringPlan, RewriteGroup
from liquidlog.spec.actions import ZCUBE_ID, ZCUBE_ZORDER_BY, CopiedAdd
from liquidlog.spec.schema import quote_path


def column_names(plan: ClusteringPlan) -> str:
    """Return the JSON list of the logical names of the plan's columns."""
    return msgspec.json.encode([quote_path(column.logical) for column in plan.columns]).decode()


def cube_tags(plan: ClusteringPlan, group: RewriteGroup) -> Mapping[str, str | None] | None:
    """Return the tags of the files of a group's cube, None if it makes no cube."""
    if group.zcube_id is None:
        return None
    return {ZCUBE_ID: group.zcube_id, ZCUBE_ZORDER_BY: column_names(plan)}


def joined(
    plan: ClusteringPlan, group: RewriteGroup, originals: Sequence[Mapping[str, msgspec.Raw]]
) -> tuple[CopiedAdd, ...]:
    """Return the adds of a group's kept files: as the log has them, with the tags of its cube.

    Statistics, row ids and fields unknown to this project stay as they are.

    Raises:
        ResultMismatchError: If these are not the kept files of the group, or it makes no cube.
    """
    tags = cube_tags(plan, group)
    if len(originals) != len(group.kept) or (originals and tags is None):
        detail = f"group {group.group_id} keeps {len(group.kept)} files, found {len(originals)}"
        raise ResultMismatchError((detail,))
    return tuple(_joined(tags or {}, add) for add in originals)


def _joined(tags: Mapping[str, str | None], original: Mapping[str, msgspec.Raw]) -> CopiedAdd:
    before = msgspec.json.decode(original.get("tags", b"null"), type=dict[str, str | None] | None)
    document = {
        **original,
        "dataChange": False,
        "tags": {**(before or {}), **tags},
        "clusteringProvider": PROVIDER,
    }
    path = msgspec.json.decode(original["path"], type=str)
    return CopiedAdd(path=path, document=msgspec.Raw(msgspec.json.encode(document)))
