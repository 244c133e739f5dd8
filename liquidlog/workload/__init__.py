"""Workloads from where they are: logs of engines and files of SQL to one form, with reasons.

- `form` the one form, one line per question, constants left out where asked; tables as sources
  name them
- `sources` recognised and read, compressed or not: begin here; query logs of engines, and DELETE,
  UPDATE, MERGE of the Delta log
- `spark_events` Spark's event log
- `catalyst` conditions as Spark prints them, and which of them narrow a table
- `statements` SQL per table, and which name means which column
"""
