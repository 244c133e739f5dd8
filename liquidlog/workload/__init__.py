"""Workloads from where they are: logs of engines and files of SQL to one form, with reasons.

- `form` the one form, `asked` what sources yield, `grouping` one line per question, `redaction`
  without constants
- `sources` recognised and read, `compressed`, `lines` as streams
- `spark_events`, `event_log`, `event_queries` Spark's event log
- `catalyst`, `nodes`, `values` conditions as Spark prints them, `scans` which of them were asked,
  `merges` whose columns they name
- `statements` SQL per table, `scopes` whose column a name is
- `query_logs` of other engines
- `delta_log` DELETE, UPDATE, MERGE
- `tables` as sources name them
"""
