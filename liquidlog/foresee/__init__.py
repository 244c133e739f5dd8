"""What queries open of a table now, and of the files that a rewrite would write.

- `packing` how many bytes files take
- `sample` sampled rows and the bounds of files that would hold them
- `rows` which are sampled, or made up from statistics
- `layouts` rows laid out as a rewrite would
- `reads` what queries open of files
- `prediction` what queries open before and after a plan, and for how long; `plans` makes it
- `ratios` how far a table is from what a full rewrite would reach
- `candidates` the rewrites to consider, with their commands
- `verdict` whether one is worth it, in words
"""
