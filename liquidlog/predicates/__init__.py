"""Which files may hold rows that satisfy a SQL condition. Rules without I/O.

- `conditions` text to tree, `sql_errors` its faults, `named` the columns in it
- `sessions` a reader's time and zone
- `literals`, `coercion` constants compared as Spark compares them, `mismatches` those
  that it refuses
- `folding` constant expressions, `arithmetic` on numbers, `durations` on times
- `units`, `periods`, `months` years, months, days of a column as ranges of it
- `prefixes` LIKE
- `file_bounds`, `partitions`, `limits` what the log says of each file
- `verdicts` three-valued answers per file
- `matching` all of it, `readers` for a whole workload, `exact` for partitions: decided or refused
- `workload` predicates with weights, `workload_text` as people write them
- `reduction` predicates to boxes that layouts are fitted to, `bounded` as many as that takes
"""
