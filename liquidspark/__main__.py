"""The command line as a program for spark-submit, which chooses the master."""

from liquidlog.cli import start


def main() -> None:
    """Run the command line and exit with its status."""
    start("liquidlog.cli.main")


if __name__ == "__main__":
    main()
