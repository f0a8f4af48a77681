"""`python -m delayq` is `delayq`."""

from delayq.cli import main

if __name__ == "__main__":
    main()
