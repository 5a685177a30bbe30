"""What a report says: builders and templates."""
