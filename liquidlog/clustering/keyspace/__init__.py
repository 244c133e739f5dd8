"""Where files lie in the space of clustering keys, and how they overlap.

- `depth` how many files share a point of one key
- `boxes` the same for several columns
- `widths` the share of each column per file
- `readers` which of them a workload's readers open
- `cells` the files that a rewrite would write
"""
