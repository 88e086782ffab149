"""`python -m hereish` is the command `hereish`."""

from hereish.cli import main

if __name__ == "__main__":
    main()
