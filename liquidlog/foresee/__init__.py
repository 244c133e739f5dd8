"""What queries open of a table now, and of the files that a rewrite would write.

- `sample` sampled rows, laid out as a rewrite would, and the bounds of files that would hold them
- `rows` which are sampled, or made up from statistics, and how many bytes files take
- `reads` what queries open of files, before and after a plan, and for how long; `plans` predicts it
- `ratios` how far a table is from what a full rewrite would reach
- `verdict` the rewrites to consider, with their commands, and whether one is worth it, in words
"""
