"""The definition of a table: columns, properties, clustering, and changes of these.

- `create` CREATE and CLUSTER BY, and the start of a new table; valid properties and values, and
  features to add or drop
- `schema_changes` columns added, renamed and dropped, properties set, earlier schemas, and how data
  becomes rows of the table
"""
