"""What readers open: of the files that are there, and of those that a rewrite would write.

Everything that says what a rewrite brings asks here: `rows` of a table, `layouts` of them by the
code that rewrites use, and `reads` of files.

- `packing` how many bytes files take
- `sample` sampled rows and the bounds of files that would hold them
- `rows` which are sampled, or made up from statistics
- `layouts` rows laid out as a rewrite would
- `reads` what readers open of files
- `prediction` what they open before and after a plan, with ranges, and how long a store takes for
  it; `plans` foresees it
- `ratios` how far a table is from what a full rewrite would reach
- `candidates` which rewrites come into question, with their commands
- `verdict` whether one is worth it, in words
"""
