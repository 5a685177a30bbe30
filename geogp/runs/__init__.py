"""Runs: settings, the run folder, and the way from tiles to a finished map."""
