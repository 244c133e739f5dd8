"""The definition of a table: columns, properties, clustering, and changes of these.

- `property_rules` which properties may have which values, and features that come and go
- `create` CREATE and CLUSTER BY, and what a new table begins with
- `schema_changes` columns added, renamed and dropped, properties set, and the schemas that the
  table had
- `alignment` how data becomes rows of the table
"""
