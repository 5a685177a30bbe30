"""Which rows are used for training, validation, calibration and tests."""
