"""From raw sources to the tables that training and evaluation read: cleaned, deduplicated, split, described."""
