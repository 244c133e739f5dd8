"""Which layout suits readers: candidates, measured on sampled rows, and the choice among them.

- `search` layouts that come into question, which are measured, and the choice; older and newest
  queries, how certain a gain is, whether it is worth it, and whether the model fits
- `advice` all of it: commands, properties, and the document that is saved
"""
