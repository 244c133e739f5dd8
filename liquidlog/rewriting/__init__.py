"""The tasks that rewrite a group of files, wherever they run: no Spark, no log, no planning."""
