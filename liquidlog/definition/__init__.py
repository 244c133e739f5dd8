"""The definition of a table: columns, properties, clustering, and changes of these.

- `create` CREATE and CLUSTER BY
- `property_rules` which properties may have which values
- `new_table` what a new table begins with
- `property_changes` SET and UNSET
- `protocols` features that come and go
- `schema_changes`, `retagging` columns renamed and dropped, `added_columns` added
- `past` the schemas that the table had
- `alignment` how data becomes rows of it
"""
