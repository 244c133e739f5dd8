"""The commands: thin calls of liquidlog.table that print text or, with `--json`, JSON.

- `main` the verbs by name and section, each loaded when it is called
- `options` what they take, `values` as values
- `output` where results go
- `verbosity` what -v logs, `defaults` from a file, `storages` of them by prefix
- `completion` what shells are offered
- `judging` plans, `looking`, `asking`, `advising`, `changing`, `planning`, `rewriting`,
  `operating`, `migrating` the verbs, `upkeeping` those of many tables, `statements` which of them
  a statement of SQL calls
- `consent` asked for
- `failures` errors to sentences and exit statuses
"""

from liquidlog.cli.main import main

__all__ = ["main"]
