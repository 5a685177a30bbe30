"""Families of models of the papers: scale mixtures, counts, last layers, heavy noise."""
