"""What a policy asks of tables, and what follows from it for one of them. No I/O.

- `policy` its values
- `values` kinds of them, `reading` from TOML
- `windows` in which nothing is begun
- `decisions` what follows for one table
"""
