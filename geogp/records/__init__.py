"""The form of run.json: its types, and how they are read."""
