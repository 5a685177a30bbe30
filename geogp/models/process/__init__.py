"""Low-rank Gaussian processes as mathematics: bases, posteriors, noise and objectives."""
