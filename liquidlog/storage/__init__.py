"""Access to local disk and object stores: addresses, options, clients, reading and writing.

- `addresses` paths and URIs; regular files only
- `options` values never shown, or a callable that gives them
- `providers` options of S3, GCS and Azure to a client's arguments
- `clients` fsspec, trusted by class, and what may be tried again
- `objects` every request to an object store: begin here
- `local` the same on local disk
- `reading`, `files` files over them, and all files below a directory
"""
