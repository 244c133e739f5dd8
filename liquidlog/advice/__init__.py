"""Which layout suits readers: candidates, measured on sampled rows, and the choice among them."""
