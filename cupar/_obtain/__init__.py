"""From memory, else from the cache, else built; call sites are memoised."""
