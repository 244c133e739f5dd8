"""From snapshot and policy to a plan: which files a rewrite takes."""
