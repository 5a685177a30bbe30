"""The settings of a map and the format of run.json: types, and how run.json is read and checked."""
