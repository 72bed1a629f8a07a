"""Power that was metered beside an MLPerf log."""

from headway.sources.mlperfpower.source import attach

__all__ = ["attach"]
