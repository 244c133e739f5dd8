"""Access to local disk and object stores: addresses, options, clients, reading and writing.

- `addresses` paths and URIs; regular files only; options, whose values are never shown
- `unity` the server of Unity Catalog: tables of a schema, a table's state, changes, credentials
- `objects` clients of fsspec, trusted by class, every request to an object store, and an object as
  a file: begin here
- `files` files on local disk and over both, all files below a directory; a table's directory, and
  what is there where no table is
"""
