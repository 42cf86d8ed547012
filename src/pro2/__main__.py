"""`python -m pro2` is the `pro2` command."""

from pro2.cli.main import main

if __name__ == "__main__":
    main()
