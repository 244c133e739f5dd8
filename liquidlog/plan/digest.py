"""What binds a result to its plan: one digest over the documents that a commit has to show.

The run that wrote the outputs leaves the digest in the table. A plan or a result that anybody
changed since has another one, whatever the change was.
"""

import hashlib

import msgspec

from liquidlog.plan.documents import ClusteringPlan, RewriteGroup, RewrittenGroup
from liquidlog.plan.files import SkippedFiles


def rewrite_digest(plan: ClusteringPlan, planned: RewriteGroup, group: RewrittenGroup) -> str:
    """Return the SHA-256, as 64 hex digits, of a planned group, its plan's terms and its result.

    Where the table lies does not count: machines may mount it at different places.
    """
    terms = msgspec.structs.replace(plan, groups=(), skipped=SkippedFiles.of(), table_uri="")
    digest = hashlib.sha256()
    for document in (terms, planned, group):
        digest.update(msgspec.json.encode(document, enc_hook=list))
        digest.update(b"\n")
    return digest.hexdigest()
