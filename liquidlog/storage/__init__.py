"""Access to local disk and object stores: addresses, options, clients, reading and writing."""
