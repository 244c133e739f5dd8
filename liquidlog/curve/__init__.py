"""Numpy kernels: value to range id to grid point to curve key, and cut selection. No I/O."""
