"""Convert options of HDFS to the arguments of our client.

Source: delta-rs passes options on to the same client, under the names of Hadoop's configuration.
"""

from collections.abc import Mapping
from typing import Any, Final

from liquidlog.errors import UsageError
from liquidlog.storage.addresses import ObjectAddress
from liquidlog.storage.options import StorageOptions

_PREFIXES: Final = ("dfs.", "fs.", "hadoop.")


def hdfs_arguments(
    address: ObjectAddress, options: StorageOptions, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Return the arguments of `hdfs.HdfsFiles`.

    The client itself reads the configuration that HADOOP_CONF_DIR names, and finds Kerberos tickets
    and delegation tokens.
    """
    del environment
    unknown = [name for name, _ in options.items if not name.startswith(_PREFIXES)]
    if unknown:
        raise UsageError(
            f"HDFS has no option {', '.join(unknown)}; known are properties of Hadoop's"
            f" configuration, which begin with {', '.join(_PREFIXES)}",
            options=unknown,
        )
    return {"url": f"hdfs://{address.bucket}", "config": dict(options.items)}
