"""Operations on a table, one module each; an operation combines the store, rules and commits."""
