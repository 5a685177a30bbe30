"""The field model: a deep basis, a process of single tiles, a law of measurements."""
