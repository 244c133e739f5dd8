"""Measures of how well a table is clustered, and pictures of it."""
