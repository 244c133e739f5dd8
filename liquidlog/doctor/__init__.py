"""Findings about a table, and the actions that repair it. Rules without I/O."""
