"""The compression codecs of data files, by the names that tables, plans and people use.

Source: Apache Parquet format, Compression.md; Delta Kernel, TableConfig; Spark,
ParquetCompressionCodec.
"""

from enum import StrEnum
from typing import Final

from liquidlog.errors import UsageError

CODEC_PROPERTY: Final = "delta.parquet.compression.codec"
"""The table property that names the codec of new files."""


class Codec(StrEnum):
    """The codecs that we write; every reader that we know reads them.

    Brotli and LZO are not among them: Spark reads them only with libraries that it does not ship.
    """

    ZSTD = "zstd"
    SNAPPY = "snappy"
    GZIP = "gzip"
    LZ4_RAW = "lz4_raw"
    UNCOMPRESSED = "uncompressed"


_ALIASES: Final = {
    "none": Codec.UNCOMPRESSED,
    # Spark's own `lz4` is Hadoop's framing, which Parquet has replaced by LZ4_RAW.
    "lz4": Codec.LZ4_RAW,
}

CODEC_NAMES: Final = (*(codec.value for codec in Codec), *_ALIASES)
"""All names of codecs, in lower case; names are compared without case."""


def parse_codec(name: str, *, where: str = "compression") -> Codec:
    """Return the codec of that name.

    Args:
        name: One of CODEC_NAMES in any case.
        where: What the name was given for.
    """
    lowered = name.lower()
    if lowered in _ALIASES:
        return _ALIASES[lowered]
    if lowered not in CODEC_NAMES:
        raise UsageError(
            f"{where} must be one of {', '.join(CODEC_NAMES)}, found {name!r}", compression=name
        )
    return Codec(lowered)
