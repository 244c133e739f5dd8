"""Access to local disk and object stores: addresses, options, clients, reading and writing.

- `addresses` paths and URIs
- `options` values never shown, or a callable that gives them
- `s3`, `gcs`, `azure` options to a client's arguments
- `clients` fsspec, trusted by class
- `failures` what may be tried again
- `objects` every request
- `local` the same on local disk
- `local_files` regular files only
- `reading`, `files` files over them, `tree` all below a directory
"""
