"""Whether a rewrite is worth it: what it would bring readers, and what it would cost.

- `verdicts` what is answered
- `candidates` which rewrites come into question, and their commands
- `parts` of large plans
- `costs` of readings and rewrites
- `asked` which columns a workload asks for
- `weighing` all of it
- `reached` what a full rewrite of the same table would reach, `halving` its boxes, `text_numbers`
  of texts in their order
"""
