"""Which layout suits the queries of a table.

- `search` tries layouts and chooses one; it says how certain the gain is, and checks predictions
- `advice` has the result: the layout, its commands and properties, and the saved document
"""
