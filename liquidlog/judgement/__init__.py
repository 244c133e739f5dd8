"""Whether a rewrite is worth it: what it would bring readers, and what it would cost."""
