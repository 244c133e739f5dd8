"""What planners do to a table over many rounds, on the log alone: no data, no storage, no clock."""
