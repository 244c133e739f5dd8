"""Simulations of planners over many rounds: no data files, no storage, no clock."""
