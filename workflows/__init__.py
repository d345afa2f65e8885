"""What runs, in which order, with which resources: Hera definitions. Imports the specs of steps only."""
