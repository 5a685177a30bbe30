"""Runs: run folders, and the steps from tiles to a finished map."""
