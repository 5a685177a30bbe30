"""Commands that answer questions about a finished run."""
