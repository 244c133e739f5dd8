"""Which files a rewrite takes: snapshot and policy to plan."""
