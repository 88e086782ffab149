"""The routes: the phones' own apps, and the library's clients."""
