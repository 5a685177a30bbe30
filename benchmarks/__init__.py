"""Scripts that measure geogp; README.md lists them."""
