"""Which layout suits readers: candidates, measured on sampled rows, and the choice among them.

- `candidates` layouts that come into question
- `sample` sampled rows and the bounds of files that would hold them, `made_up` rows from
  statistics
- `layouts` rows laid out as a candidate would
- `readings` what predicates open of them
- `search` which are measured, and the choice
- `halves` older and newest queries
- `intervals` how certain a gain is
- `verdict` whether it is worth it
- `backtests` predicted against observed
- `advice` all of it, `steps` commands and properties, `documents` saved
"""
