"""The Bloom filters of a Parquet file, as DuckDB finds them."""

import duckdb


def filters_in(path: str) -> list[dict[str, int]]:
    """Return per row group the bytes of its filters, by the names of columns joined by dots."""
    rows = duckdb.execute(
        "select row_group_id, path_in_schema, bloom_filter_length from parquet_metadata(?)", [path]
    ).fetchall()
    found: dict[int, dict[str, int]] = {group: {} for group, _, _ in rows}
    for group, name, size_bytes in rows:
        if size_bytes is not None:
            found[group][name.replace(", ", ".")] = size_bytes
    return [found[group] for group in sorted(found)]
