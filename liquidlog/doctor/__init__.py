"""Findings about a table, and the actions that repair it. Rules without I/O.

- `examined` the facts, and what a finding says
- `findings` what is wrong, `layout` with files and columns
- `asked` which columns a workload asks for
- `missed` removes of past commits that removed nothing
- `repairs` the actions that mend it
"""
