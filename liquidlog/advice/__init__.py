"""Which layout suits readers: candidates, measured on sampled rows, and the choice among them.

- `candidates` layouts that come into question
- `search` which are measured, and the choice
- `halves` older and newest queries
- `intervals` how certain a gain is
- `verdict` whether it is worth it
- `backtests` predicted against observed
- `advice` all of it, `steps` commands and properties, `documents` saved
"""
