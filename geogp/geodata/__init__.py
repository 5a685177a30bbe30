"""Reading of regions, covariates and tiles, and simulation of tiles."""
