"""Tags of commitInfo that name the plan and the groups of a commit, and what it should spare."""

from collections.abc import Mapping, Sequence
from typing import Final

PLAN_ID_TAG: Final = "liquidlog.planId"
GROUP_ID_TAG: Final = "liquidlog.groupId"
GROUP_IDS_TAG: Final = "liquidlog.groupIds"
"""Tags of commitInfo by which a run of a plan recognises the groups already committed.

A commit of several groups names the first of them as if it were alone, for readers that know no
more than one, and then all of them.
"""

SPARED_TAG: Final = "liquidlog.sparedBytesADay"
"""Tag of commitInfo: what readers were predicted to be spared in a day by the groups of a commit,
in bytes read; those of a plan are taken to spare in proportion to their bytes."""


def group_tags(group_ids: Sequence[int]) -> dict[str, str]:
    """Return the tags of a commit of these groups, at least one."""
    tags = {GROUP_ID_TAG: str(group_ids[0])}
    if len(group_ids) > 1:
        tags[GROUP_IDS_TAG] = ",".join(map(str, group_ids))
    return tags


def tagged_groups(tags: Mapping[str, str], plan_id: str) -> frozenset[int]:
    """Return the groups of a plan that a commit with these tags has committed; mostly none."""
    if tags.get(PLAN_ID_TAG) != plan_id:
        return frozenset()
    return frozenset(map(int, tags.get(GROUP_IDS_TAG, tags[GROUP_ID_TAG]).split(",")))
