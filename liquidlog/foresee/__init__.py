"""Predictions: which files queries open now, and which after a rewrite.

- `sample` lays sampled rows out as a rewrite would, and gives the bounds of its files
- `rows` samples rows or makes them up from statistics, and predicts the size of files
- `reads` counts what queries open, and how long they wait; `plans` predicts it for plans
- `ratios` compares a table with a full rewrite of it
- `verdict` says which rewrites come into question, and whether one is worth it
"""
