"""The write side: from the topics to the tables."""
