"""The low-rank process: weights, noise, objectives, linear algebra."""
