"""Numpy kernels: value to range id to grid point to curve key, and cut selection. No I/O.

- `ranges`, `words`, `search` values to range ids
- `grid` what curves share
- `hilbert`, `zorder`, `linear`, `curves` range ids to curve keys
- `kd` boxes instead of a curve
- `order` sorting rows
- `cuts` where files begin
- `fit` cells of the grid, one per file
- `asked`, `conditions` what readers ask, on the grid and as values
- `tree` boxes, single values of a prefix first
- `grids`, `prefixed`, `fitted` layouts for readers and with a prefix
- `placing` all of it, by the curve's name
"""
