"""Which rows train, validate, calibrate and test."""
