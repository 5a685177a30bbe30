"""Many places at once: covariances, levels of areas, designs, excursion sets."""
