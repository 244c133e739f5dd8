"""Which files may hold rows that satisfy a SQL condition. Rules without I/O.

- `conditions` trees of SQL conditions and their columns: begin here; verdicts from bounds of files
- `literals` constants, compared as Spark compares them, and constants that Spark refuses
- `folding` constant expressions and durations; years, months and days of a column as ranges of it
- `matching` the files that may match a workload, the partitions that a condition selects, and
  predicates as boxes, to fit layouts to them
- `workload` predicates with weights, and sessions
"""
