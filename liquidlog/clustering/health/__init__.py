"""How well a table is clustered, in numbers and pictures."""
