"""The content of a report: builders and templates."""
