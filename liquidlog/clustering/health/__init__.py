"""Measures of how well a table is clustered, and pictures of it.

- `measure` how good a clustering is
- `cubes` cube by cube
- `notes` what to know about it
- `bars` limits that it must keep
- `axes` positions and values beside them, `maps` files now and after a rewrite
"""
