"""The models by name, how one is built, and how it is stored."""
