"""How far a table is from what a full rewrite would reach.

- `reached` what a full rewrite of the same table would reach, `halving` its boxes, `text_numbers`
  of texts in their order
"""
