"""Where files lie in the space of clustering keys, and how they overlap.

- `depth` how many files share a point of one key, or a box of several columns
- `widths` the share of each column per file
- `readers` which of them readers open, also of the files that a rewrite would write
"""
