"""Remote files, and the cache that keeps what was read of them."""
