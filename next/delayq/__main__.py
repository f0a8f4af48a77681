"""`python -m delayq` is the command `delayq`."""

from delayq.cli.main import main

if __name__ == "__main__":
    main()
