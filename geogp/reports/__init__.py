"""Reports on runs and comparisons of runs: builders and templates."""
