"""The field model: a deep basis, a process of single tiles and a measurement model."""
