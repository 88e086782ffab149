"""The protocols of phones' apps, one module each: bytes in, fixes out, and releases back."""
