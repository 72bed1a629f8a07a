"""Numbers in, numbers out: what the goodput could be, with the ledger's categories, and what that is worth."""
