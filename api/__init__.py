"""The read side: saved queries answered over HTTP from the tables."""
