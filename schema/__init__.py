"""What the write side and the read side share: events, time, histogram, blocks, tables, saved queries, settings."""
