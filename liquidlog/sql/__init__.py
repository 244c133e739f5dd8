"""Statements of SQL about Delta tables: text to values; nothing here opens a table.

- `words` sqlglot's tokens in a dialect of ours, errors that point at one
- `statements` the values
- `columns` columns and types, `parts` names of tables, properties, conditions
- `creation`, `parser` the statements
"""
