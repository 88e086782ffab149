"""The figures of the study."""
