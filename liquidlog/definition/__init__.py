"""The definition of a table: columns, properties, clustering, and changes of these."""
