"""Only shows: ledgers as a terminal page and as JSON."""
