"""Clustering columns, cubes, plans, outcomes and health. Rules without I/O."""
