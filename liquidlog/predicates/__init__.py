"""Which files may hold rows that a SQL condition asks for. Rules without I/O."""
