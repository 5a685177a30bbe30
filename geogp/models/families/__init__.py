"""Model families from papers: scale mixtures, counts, classes, last layers, heavy-tailed noise."""
