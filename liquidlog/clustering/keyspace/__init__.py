"""Where files lie in the space of clustering keys, and how they overlap."""
