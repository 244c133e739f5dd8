"""What is wrong with a table, and the actions that mend it. Rules without I/O."""
