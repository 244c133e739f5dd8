"""The two documents between planner, executor and commit: ClusteringPlan and RewriteResult.

A plan lists the files to rewrite together and all that an executor needs for it; a result lists the
written files with facts about them. Neither contains a secret; both can be saved, reviewed, shipped
and replayed. Sizes are bytes and times milliseconds since the epoch, unless a name says otherwise.

- `documents` plan and result
- `encoding` both as bytes, what binds one to the other, and commits to both
- `facts` what an executor says of its outputs, and while it works
- `files` a plan's files, in columns
- `tags` which groups a commit names
- `fitted` what readers ask of its columns
- `writes` the same two documents for rows that come from outside
- `reads` what a reader opens
"""

from liquidlog.plan.documents import (
    DEFAULT_MAX_FILE_BYTES,
    DEFAULT_MIN_CUBE_BYTES,
    DEFAULT_MIN_OVERLAP,
    DEFAULT_MIN_OVERLAPPING_FILES,
    DEFAULT_ROW_GROUP_ROWS,
    DEFAULT_TARGET_CUBE_BYTES,
    DEFAULT_TOLERANCE,
    FORMAT_VERSION,
    GIB,
    MIGRATING_FORMAT_VERSION,
    MIN_ROW_GROUP_ROWS,
    OPTION,
    RESULT_FORMAT_VERSION,
    ClusteringPlan,
    ClusteringPolicy,
    GroupFailure,
    Outcome,
    PlannedColumn,
    RewriteMode,
    RewriteResult,
    RewrittenGroup,
    RowTracking,
    WriterOptions,
    file_schema,
)
from liquidlog.plan.encoding import (
    decode_plan,
    decode_result,
    encode_plan,
    encode_rewritten_group,
    plan_document,
    plan_version,
    rewrite_digest,
    rewritten_group_begins,
)
from liquidlog.plan.facts import (
    Cancelled,
    GroupCosts,
    Progress,
    Tasks,
    WrittenFile,
)
from liquidlog.plan.files import (
    NONE_KEPT,
    Document,
    InputFile,
    InputFiles,
    KeptFile,
    KeptFiles,
    PlannedDeletionVector,
    RewriteGroup,
    SkippedFile,
    SkippedFiles,
    SkipReason,
    repeated_inputs,
    repeated_message,
)
from liquidlog.plan.fitted import (
    AskedPredicate,
    FittedWorkload,
    Interval,
    LeftOut,
    Term,
    parsed_as,
    weighted_columns,
)
from liquidlog.plan.reads import ReadPlan
from liquidlog.plan.tags import (
    GROUP_ID_TAG,
    GROUP_IDS_TAG,
    PLAN_ID_TAG,
    SPARED_TAG,
    group_tags,
    tagged_groups,
)
from liquidlog.plan.writes import (
    ColumnSource,
    RowCheck,
    WritePlan,
    WriteResult,
    Written,
    files_digest,
)

__all__ = [
    "DEFAULT_MAX_FILE_BYTES",
    "DEFAULT_MIN_CUBE_BYTES",
    "DEFAULT_MIN_OVERLAP",
    "DEFAULT_MIN_OVERLAPPING_FILES",
    "DEFAULT_ROW_GROUP_ROWS",
    "DEFAULT_TARGET_CUBE_BYTES",
    "DEFAULT_TOLERANCE",
    "FORMAT_VERSION",
    "GIB",
    "GROUP_IDS_TAG",
    "GROUP_ID_TAG",
    "MIGRATING_FORMAT_VERSION",
    "MIN_ROW_GROUP_ROWS",
    "NONE_KEPT",
    "OPTION",
    "PLAN_ID_TAG",
    "RESULT_FORMAT_VERSION",
    "SPARED_TAG",
    "AskedPredicate",
    "Cancelled",
    "ClusteringPlan",
    "ClusteringPolicy",
    "ColumnSource",
    "Document",
    "FittedWorkload",
    "GroupCosts",
    "GroupFailure",
    "InputFile",
    "InputFiles",
    "Interval",
    "KeptFile",
    "KeptFiles",
    "LeftOut",
    "Outcome",
    "PlannedColumn",
    "PlannedDeletionVector",
    "Progress",
    "ReadPlan",
    "RewriteGroup",
    "RewriteMode",
    "RewriteResult",
    "RewrittenGroup",
    "RowCheck",
    "RowTracking",
    "SkipReason",
    "SkippedFile",
    "SkippedFiles",
    "Tasks",
    "Term",
    "WritePlan",
    "WriteResult",
    "WriterOptions",
    "Written",
    "WrittenFile",
    "decode_plan",
    "decode_result",
    "encode_plan",
    "encode_rewritten_group",
    "file_schema",
    "files_digest",
    "group_tags",
    "parsed_as",
    "plan_document",
    "plan_version",
    "repeated_inputs",
    "repeated_message",
    "rewrite_digest",
    "rewritten_group_begins",
    "tagged_groups",
    "weighted_columns",
]
