"""Statements of SQL about Delta tables: text to values; nothing here opens a table."""
