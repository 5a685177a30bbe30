"""The models by name, and functions that build, save and load a model."""
