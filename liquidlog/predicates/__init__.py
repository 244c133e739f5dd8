"""Which files may hold rows that satisfy a SQL condition. Rules without I/O."""
