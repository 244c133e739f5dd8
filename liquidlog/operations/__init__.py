"""What users do with a table, one module an operation: store, rules and commits put together."""
