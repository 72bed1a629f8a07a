"""The ledger: events in, amounts out. No I/O, no clock, no printing."""
