"""`python -m liquidspark`, its command, and the file to pass to spark-submit."""

from liquidlog.cli import start


def main() -> None:
    """Run the command line and exit with its status."""
    start("liquidspark.cli")


if __name__ == "__main__":
    main()
