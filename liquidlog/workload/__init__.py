"""Workloads from where they are: logs of engines and files of SQL to one form, with reasons."""
