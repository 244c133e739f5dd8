"""What a plan would bring, without a rewrite: no data files, no storage, no clock.

- `imagined` files that nobody wrote, in a snapshot
- `text_line`, `scales` values as numbers, and back
- `after` the table after a plan, in several worlds
- `reads` what readers open in each
- `ranges`, `uncertainty` how far that is from what comes true
- `prediction` what a plan would bring
- `pictured` the files after it, to be drawn
"""
