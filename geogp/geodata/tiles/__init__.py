"""Ookla's tiles: file format, quadkeys, quarters and rows."""
