"""The commands, one file for each; `apps/geogp_cli` parses their options and prints results."""
