"""Joint results for many places: covariances, levels of areas, designs, excursion sets."""
