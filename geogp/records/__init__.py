"""The form of run.json: its types, and how values are read as them."""
