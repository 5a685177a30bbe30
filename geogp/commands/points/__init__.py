"""Commands about points in files: predictions at places, and the template of a file."""
