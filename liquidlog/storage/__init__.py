"""Access to local disk and object stores: addresses, options, clients, reading and writing.

- `addresses` paths and URIs; regular files only
- `options` values never shown, or a callable that gives them
- `clients` fsspec, trusted by class, its arguments for S3, GCS and Azure, and what may be tried
  again
- `unity` the server of Unity Catalog: tables of a schema, a table's state, changes, credentials
- `objects` every request to an object store, and an object as a file: begin here
- `files` files on local disk and over both, and all files below a directory
"""
