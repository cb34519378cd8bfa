"""From memory, else from the cache, else built; factories remember what they returned."""
