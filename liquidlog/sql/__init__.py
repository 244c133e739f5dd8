"""Statements of SQL about Delta tables: text to values; nothing here opens a table.

- `words` a text word by word, and errors that point at one; conditions
- `statements` the values, `parser` text to them; new tables, columns, types and properties from
  sqlglot's trees
"""
