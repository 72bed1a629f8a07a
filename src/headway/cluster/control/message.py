"""What the coordinator and its workers say to each other: msgspec records, no code in them."""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, gc=False):
    """What all messages share: their type's name as a tag."""


class Hello(Message, frozen=True, kw_only=True):
    """The first word of a worker; ``store`` tells its second connection, for the group's keys."""

    addr: str
    pid: int
    host: str
    store: bool = False


class Beat(Message, frozen=True, kw_only=True):
    """A worker lives; the bytes it holds in memory, and how many forwards of the drive are done."""

    rss_bytes: int | None = None
    forwards: int = 0


class LogPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a stage writes its log: run, root folder, attempt, rank; after which step it goes on."""

    run: str
    root: str | None
    attempt: str
    rank: int
    world: int
    restored: int | None = None


class Build(Message, frozen=True, kw_only=True):
    """Build the layers ``start`` to ``stop`` from the checkpoint in this folder."""

    folder: str
    fingerprint: str
    start: int
    stop: int
    precision: str
    device: str
    threads: int | None = None
    log: LogPlace | None = None


class Built(Message, frozen=True, kw_only=True):
    """A stage is built and its weights are in memory; its `NodeReport` as JSON."""

    report: str


class Form(Message, frozen=True, kw_only=True):
    """Form the group of this generation, as this rank, and go on in that log."""

    generation: int
    rank: int
    world: int
    timeout_s: float
    log: LogPlace | None = None


class Formed(Message, frozen=True, kw_only=True):
    """The group of that generation is there; why its stage's log is not written, where it is not."""

    generation: int
    log_fault: str = ""


class Drive(Message, frozen=True, kw_only=True):
    """Run a batch of token ids, little-endian int64 ``(batch, length)``, and generate ``steps`` tokens.

    ``logits``: ``all`` positions, the ``last`` of each forward, or ``none``.
    """

    generation: int
    ids: bytes
    batch: int
    length: int
    micro_batches: int
    steps: int
    first_step: int
    logits: str = "all"


class Driven(Message, frozen=True, kw_only=True):
    """What a stage measured of a drive [ns], by forward; the last stage's also has tokens and logits."""

    generation: int
    forward_ns: list[int]
    wall_ns: list[int]
    rss_bytes: int | None = None
    log_fault: str = ""
    tokens: list[list[int]] = []
    logits: bytes = b""
    shape: tuple[int, ...] = ()


class Leave(Message, frozen=True, kw_only=True):
    """Give up what runs in this generation: a peer is gone."""

    generation: int


class Left(Message, frozen=True, kw_only=True):
    """A worker has given up that generation, and waits for the next."""

    generation: int
    why: str = ""


class Stop(Message, frozen=True, kw_only=True):
    """End."""

    reason: str = "finished"


class Failed(Message, frozen=True, kw_only=True):
    """What a worker could not do, in the words of the error; ``slug`` where it is one of Headway's."""

    what: str
    next_step: str = ""
    slug: str = ""


class StoreCall(Message, frozen=True, kw_only=True):
    """One operation on the group's keys: set, get, add, compare_set, wait, check, delete."""

    op: str
    keys: list[str]
    value: bytes = b""
    expected: bytes = b""
    amount: int = 0
    timeout_s: float = 0.0


class StoreReply(Message, frozen=True, kw_only=True):
    """Its answer; ``ok`` is false when the wait was too long."""

    value: bytes = b""
    number: int = 0
    ok: bool = True


AnyMessage = (
    Hello
    | Beat
    | Build
    | Built
    | Form
    | Formed
    | Drive
    | Driven
    | Leave
    | Left
    | Stop
    | Failed
    | StoreCall
    | StoreReply
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyMessage)


def encode(message: AnyMessage) -> bytes:
    """Return a message as bytes."""
    return _encoder.encode(message)


def decode(data: bytes) -> AnyMessage:
    """Return the message in these bytes.

    Raises:
        msgspec.DecodeError: They are none.

    Example:
        >>> decode(encode(Formed(generation=2)))
        Formed(generation=2, log_fault='')
    """
    try:
        return _decoder.decode(data)
    except RecursionError as error:
        raise msgspec.DecodeError(str(error)) from None
