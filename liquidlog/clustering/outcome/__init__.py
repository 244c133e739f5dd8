"""From plan and result of a rewrite to actions; checks and metrics of both."""
