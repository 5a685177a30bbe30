"""The low-rank process: weights, noise, objectives and linear algebra."""
