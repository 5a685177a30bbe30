"""Points in files: places to ask about, and measurements of your own."""
