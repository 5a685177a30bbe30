"""The catalogue of models, and functions that build, save and load a model."""
