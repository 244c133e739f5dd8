"""The version of this distribution: the build reads it here, and every commit names it."""

__version__ = "0.1.0"

ENGINE_INFO = f"liquidlog/{__version__}"
"""By what name commits know who made them."""
