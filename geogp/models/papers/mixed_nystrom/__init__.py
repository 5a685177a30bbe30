"""Network kernels and their mixtures, on anchors."""
