"""What a table is: its columns, its properties, how it is clustered, and changes of these."""
