"""`python -m liquidspark`, and the file that spark-submit is given."""

from liquidspark.cli import main

if __name__ == "__main__":
    main()
