"""Which files may hold rows that satisfy a SQL condition. Rules without I/O.

- `conditions` text to tree, its faults and columns: begin here; what the log knows of each file, as
  three-valued answers
- `literals` constants, compared as Spark compares them, and constants that Spark refuses
- `folding` constant expressions and durations; years, months and days of a column as ranges of it
- `matching` the files that a workload may need, with LIKE; partitions that a condition selects;
  workloads as people write them
- `workload` predicates with weights, and readers' sessions
- `reduction` predicates to boxes, to which layouts are fitted
"""
