"""`python -m posttrain.cli`: what the console script `posttrain` runs."""

from posttrain.cli import main

if __name__ == "__main__":
    main()
