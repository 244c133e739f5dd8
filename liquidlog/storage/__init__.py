"""Access to local disk and object stores: addresses, options, clients, reading and writing.

- `objects` object stores: clients of fsspec, every request, and an object as a file: begin here
- `files` files in any storage, all files below a directory, and a table's directory
- `addresses` paths, URIs and storage options; opens regular files only
- `unity` Unity Catalog: tables of a schema; the store of a table whose versions it ratifies
"""
