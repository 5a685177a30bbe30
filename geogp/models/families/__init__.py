"""Model families from papers: scale mixtures, counts, last layers and heavy-tailed noise."""
