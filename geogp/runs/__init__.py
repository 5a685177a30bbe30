"""What a run is: its settings, its folder, and the way from tiles to a finished map."""
