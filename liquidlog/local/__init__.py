"""The executor without Spark: the tasks of a rewrite in a few processes of one machine."""
