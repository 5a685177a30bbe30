"""The commands, one file each; `apps/geogp_cli` parses the options and prints the results."""
