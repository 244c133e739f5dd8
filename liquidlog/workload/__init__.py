"""Workloads: queries from logs of engines and from SQL, imported to one form.

- `sources` recognises and reads sources: begin here. It reads Spark's event log, query logs of
  engines, and DELETE, UPDATE and MERGE in the Delta log
- `queries` has the form, one line per query, and the tables as sources name them; it redacts
  constants
- `catalyst` parses conditions as Spark prints them, and finds those that narrow a table
- `statements` takes SQL apart: which table is read, and which name means which column
"""
