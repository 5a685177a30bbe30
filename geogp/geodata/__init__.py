"""Reading of tiles and boundaries, and observations made from tiles."""
