"""Many tables: found, looked at, ranked, and kept in shape one after the other."""
