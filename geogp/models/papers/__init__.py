"""The models of the papers, a folder for each."""
