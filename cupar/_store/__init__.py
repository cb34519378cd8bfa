"""Entries in memory, directories, bundles and shared stores."""
