"""Commit actions as a new version of a table; this package knows nothing of clustering."""
