"""The format of run.json: its types, and how run.json is read and checked."""
