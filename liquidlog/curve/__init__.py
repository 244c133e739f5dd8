"""Numpy kernels: value to range id to grid point to curve key, and cut selection. No I/O.

- `curves` values to range ids, these to curve keys, and the order of rows
- `cuts` what queries ask, as cells of the grid and as values; where files begin along a curve
- `boxes` the space cut into boxes (kd), and cells of the grid as files (fit)
- `layouts` grids fitted to queries, with a prefix, by the curve's name: begin here
"""
