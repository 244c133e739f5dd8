"""Bytes on local disk and in object stores: addresses, options, clients, reading and writing."""
