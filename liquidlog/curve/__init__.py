"""Numpy kernels: value to range id to grid point to curve key, and where files begin. No I/O.

- `layouts` layouts by the name of a curve, fitted to queries or with a prefix: begin here
- `curves` values to range ids, range ids to curve keys, the order of rows, and cuts along a curve
"""
