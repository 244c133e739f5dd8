"""What a rewrite means for the table: plan and result to actions, checks and metrics."""
