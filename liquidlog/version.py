"""The version of this distribution: the build reads it here, and every commit names it."""

__version__ = "0.1.0"
