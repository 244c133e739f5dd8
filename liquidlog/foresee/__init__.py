"""Predictions: which files queries open now, and which after a rewrite.

- `verdict` counts what queries open and how long they wait, and says whether a rewrite is worth it:
  begin here to change what is recommended
- `plans` predicts it for plans, and compares a table with a full rewrite of it
- `rows` samples rows or makes them up from statistics, and predicts the size of files
- `sample` lays sampled rows out as a rewrite would, and gives the bounds of its files
"""
