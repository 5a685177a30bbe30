"""The field model: a deep basis process, a process of single tiles and a measurement model."""
