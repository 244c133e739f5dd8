"""The definition of a table: columns, properties, clustering, and changes of these.

- `create` CREATE TABLE and CLUSTER BY; valid properties and values; features to add or drop
- `schema_changes` columns added, renamed, dropped; properties set; earlier schemas; how data
  becomes rows of the table
"""
