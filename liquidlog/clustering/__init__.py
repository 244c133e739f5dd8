"""Snapshot to plan, and plan and result to actions. Pure rules."""
