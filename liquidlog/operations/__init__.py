"""What users do with a table, one module per operation: store, rules and commits put together."""
