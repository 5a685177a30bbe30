"""The `geogp` command."""
