"""Actions to a new version. Knows nothing of clustering."""
