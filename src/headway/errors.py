"""Errors and their text: what could not be done, what was found, the next step, and a slug.

Every message has one form, so that a reader finds the same three things in the same places::

    Cannot <action> <object>: <found>; <limit>. <next step>. [slug]

Each slug has a line in ``docs/errors.md``. Classes keep their operands in ``details``, inherit
the built-in that fits, and pickle, because they cross processes.
"""

from __future__ import annotations

from typing import Any


class HeadwayError(Exception):
    """Base of all errors of Headway.

    Args:
        what: The sentence up to the next step, without its full stop.
        next_step: What the user does now, without its full stop.
        slug: The name of this error in ``docs/errors.md``.
        details: The operands, by name.

    Example:
        >>> str(SourceError("Cannot read a.log: it is empty", "Give a file with content", "empty-file"))
        'Cannot read a.log: it is empty. Give a file with content. [empty-file]'
    """

    def __init__(self, what: str, next_step: str, slug: str, **details: Any) -> None:
        super().__init__(what, next_step, slug)
        self.what = what
        self.next_step = next_step
        self.slug = slug
        self.details = details

    def __str__(self) -> str:
        """Return the message as one line."""
        return f"{self.what}. {self.next_step}. [{self.slug}]"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the operands."""
        return (_rebuild, (type(self), self.what, self.next_step, self.slug, self.details))


def _rebuild(cls: type[HeadwayError], what: str, next_step: str, slug: str, details: dict[str, Any]) -> HeadwayError:
    return cls(what, next_step, slug, **details)


class ArgumentError(HeadwayError, ValueError):
    """An argument or an option has a value that cannot be used."""


class SourceError(HeadwayError, ValueError):
    """A path holds nothing that a source can read."""


class LedgerError(HeadwayError, ArithmeticError):
    """A ledger does not balance, or ledgers that do not fit were added."""


class ClusterError(HeadwayError, RuntimeError):
    """A model cannot be placed, launched or driven over its nodes."""
