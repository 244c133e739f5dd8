"""What a policy asks of tables, and what follows from it for one of them. No I/O."""
