"""Arrays in shards: what each shard reduces to, how ranks talk, and algorithms made of both."""
