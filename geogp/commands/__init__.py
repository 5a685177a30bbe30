"""What a user types, one file a command; `apps/geogp_cli` parses and prints."""
