"""What the Delta protocol says, as types and codecs. No I/O."""
