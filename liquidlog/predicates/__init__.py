"""Which files may hold rows that satisfy a SQL condition. Rules without I/O.

- `conditions` text to tree, its faults, the columns in it: begin here
- `literals` constants compared as Spark compares them, and those that it refuses
- `folding` constant expressions, arithmetic among them
- `times` durations; years, months and days of a column as ranges of it
- `file_bounds` what the log says of each file, as three-valued answers
- `matching` which files a whole workload may need, LIKE among it, which partitions are asked for,
  decided or refused, and workloads as people write them
- `workload` predicates with weights and readers' sessions
- `reduction` predicates to boxes that layouts are fitted to
"""
