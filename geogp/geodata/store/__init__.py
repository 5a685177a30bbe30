"""Remote files, and the cache of downloaded data."""
