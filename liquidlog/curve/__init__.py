"""Numpy kernels: value to range id to grid point to curve key, and where files begin. No I/O.

- `layouts` where rows go, by the name of a curve, fitted to queries, with a prefix: begin here
- `curves` values to range ids, range ids to curve keys, and the order of rows
- `cuts` predicates of queries, on the grid and as values; where files begin along a curve
- `boxes` trees that divide the grid into boxes, and grids whose cells are files
"""
