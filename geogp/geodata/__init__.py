"""Tiles and boundaries in, observations out."""
