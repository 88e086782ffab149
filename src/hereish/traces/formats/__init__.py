"""The file formats, one module each."""
