"""Ookla's tiles: their schema, quadkeys, quarters and rows."""
