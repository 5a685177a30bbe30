"""Families of models from papers: scale mixtures, counts, last layers, heavy-tailed noise."""
