"""`python -m liquidspark`, and the file to pass to spark-submit."""

from liquidspark.cli import main

if __name__ == "__main__":
    main()
