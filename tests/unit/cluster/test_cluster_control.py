"""The control connections: who may join, what a stranger can do, and what the keys of a group answer."""

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.cluster import worker
from headway.cluster.config import ClusterConfig, NodeConfig
from headway.cluster.control import channel as channels
from headway.cluster.control import hub as hubs
from headway.cluster.control import message
from headway.cluster.control.channel import Channel, accept, as_connection, connect
from headway.cluster.control.hub import Hub
from headway.cluster.control.keys import Keys, store_over
from headway.cluster.control.message import (
    AnyMessage,
    Beat,
    Build,
    Drive,
    Failed,
    Hello,
    Leave,
    Left,
    StoreCall,
    decode,
    encode,
)
from headway.cluster.coordinator import Coordinator, NodeLost
from headway.errors import ClusterError

from unit.cluster.processes import LOOPBACK, listening, lives, until

TOKEN = "0123456789abcdef"
HELLO = Hello(addr="n0", pid=1, host="h")


@pytest.fixture
def hub():
    with contextlib.closing(Hub("127.0.0.1", 0, TOKEN, ["n0", "n1"])) as it:
        yield it


@pytest.fixture
def stranger(hub):
    """Return a function that connects to the hub without a word."""
    with contextlib.ExitStack() as opened:
        yield lambda: opened.enter_context(socket.create_connection((hub.host, hub.port), timeout=10))


def joins(hub, addr="n0"):
    """Join as a worker, be heard, and go."""
    with contextlib.closing(connect(hub.host, hub.port, TOKEN)) as channel:
        channel.send(Hello(addr=addr, pid=1, host="h"))
        heard = hub.hear(10.0)
        assert heard is not None
        assert (heard.addr, heard.message) == (addr, Hello(addr=addr, pid=1, host="h"))
        assert hub.connected() == {addr}
        assert hub.send(addr, message.Stop())
        assert channel.receive(10.0) == message.Stop()
    assert hub.hear(10.0).message is None
    assert hub.connected() == set()


def is_closed(peer):
    """Tell whether the other end has closed a socket, after what it sent."""
    with contextlib.suppress(OSError):
        while peer.recv(4096):
            pass
    return True


@pytest.mark.parametrize("token", ["", "another", TOKEN[:-1], TOKEN.upper()])
def test_a_worker_with_another_token_is_refused(hub, token):
    with pytest.raises(ClusterError, match=r"another token.*\[wrong-token\]"):
        connect(hub.host, hub.port, token)
    until(lambda: hub.refused == 1)
    joins(hub)


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\0" * 4096,
        os.urandom(4096),
        struct.pack("!i", 32) + bytes(32) + struct.pack("!i", 32) + bytes(32),
        struct.pack("!i", 2**31 - 1),
        struct.pack("!i", -1) + struct.pack("!Q", 2**62),
        struct.pack("!i", -5),
        struct.pack("!i", 65) + bytes(65),
        encode(HELLO),
    ],
    ids=["http", "zeros", "random", "bad proof", "2 GiB", "4 EiB", "negative", "65 bytes", "hello"],
)
def test_whatever_else_a_stranger_says_is_refused_at_once(hub, stranger, said):
    peer = stranger()
    with contextlib.suppress(OSError):
        peer.sendall(said)
        peer.shutdown(socket.SHUT_WR)
    assert is_closed(peer)
    until(lambda: hub.refused == 1)
    assert hub.connected() == set()
    joins(hub)


def test_no_memory_is_taken_for_a_frame_that_a_stranger_announces(hub, stranger):
    before = worker.resident_bytes()
    for _ in range(20):
        stranger().sendall(struct.pack("!i", -1) + struct.pack("!Q", 2**40) + bytes(64))
    until(lambda: hub.refused == 20)
    assert worker.resident_bytes() - before < 16e6


@pytest.mark.parametrize("said", [b"", b"\0", struct.pack("!i", 32), struct.pack("!i", 32) + b"half"])
def test_one_that_stops_in_the_middle_is_given_up(monkeypatch, hub, stranger, said):
    monkeypatch.setattr(channels, "PATIENCE_S", 0.2)
    peer = stranger()
    peer.sendall(said)
    assert is_closed(peer)
    until(lambda: hub.refused == 1)
    joins(hub)


@pytest.mark.parametrize("said", [b"", b"\0\0"])
def test_a_worker_joins_past_any_number_of_idle_connections(hub, stranger, said):
    idle = [stranger() for _ in range(200)]
    for peer in idle:
        with contextlib.suppress(OSError):
            peer.sendall(said)
    joins(hub)
    assert threading.active_count() < 100
    assert all(is_closed(peer) for peer in idle[:100])  # the oldest make room


def test_the_port_is_free_after_a_close_with_strangers(hub, stranger):
    peers = [stranger() for _ in range(3)]
    until(lambda: len(hub._strangers) == 3)
    hub.close()
    hub.close()
    assert all(is_closed(peer) for peer in peers)
    until(lambda: not any(thread.name == "headway-hub" for thread in threading.enumerate()))
    with contextlib.closing(Hub(hub.host, hub.port, TOKEN, ["n0"])) as again:
        joins(again)


def test_an_overheard_proof_is_of_no_use(hub, stranger):
    """A worker joins through a third that listens; what it said is said again on a new connection."""
    said = []
    with socket.create_server(("127.0.0.1", 0)) as between:

        def relay():
            near, far = between.accept()[0], stranger()
            far.setblocking(True)
            other = threading.Thread(target=copy, args=(far, near, None))
            other.start()
            copy(near, far, said)
            other.join()
            near.close()

        def copy(source, sink, kept):
            with contextlib.suppress(OSError):
                while data := source.recv(4096):
                    if kept is not None:
                        kept.append(data)
                    sink.sendall(data)
            for one in (source, sink):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

        thread = threading.Thread(target=relay)
        thread.start()
        with contextlib.closing(connect(*between.getsockname(), TOKEN)) as channel:
            channel.send(HELLO)
            assert hub.hear(10.0).message == HELLO
        assert hub.hear(10.0).message is None
        thread.join()
    peer = stranger()
    with contextlib.suppress(OSError):
        peer.sendall(b"".join(said))
    assert is_closed(peer)
    until(lambda: hub.refused == 1)
    assert hub.hear(0.0) is None


@pytest.mark.parametrize("store", [False, True])
def test_a_name_that_is_not_in_the_configuration_is_refused(hub, store):
    with contextlib.closing(connect(hub.host, hub.port, TOKEN)) as channel:
        channel.send(Hello(addr="n9", pid=1, host="h", store=store))
        assert channel.receive(10.0).what == "no node n9 in the configuration: it has n0, n1"
        with pytest.raises(EOFError):
            channel.receive(10.0)
    assert hub.hear(0.0) is None


@pytest.mark.parametrize("store", [False, True])
def test_a_second_worker_of_a_name_is_refused_and_the_first_stays(hub, store):
    hello = Hello(addr="n0", pid=1, host="h", store=store)
    with (
        contextlib.closing(connect(hub.host, hub.port, TOKEN)) as first,
        contextlib.closing(connect(hub.host, hub.port, TOKEN)) as second,
    ):
        first.send(hello)
        until(lambda: "n0" in (hub._stores if store else hub._channels))
        second.send(hello)
        assert second.receive(10.0).what == "a worker is connected as n0 already"
        if store:
            first.send(StoreCall(op="add", keys=["k"], amount=2))
            assert first.receive(10.0).number == 2
        else:
            assert hub.send("n0", message.Stop())
            assert first.receive(10.0) == message.Stop()


@pytest.mark.parametrize("said", [b"", b"\xff", encode(Beat()), encode(Failed(what="x"))])
def test_one_that_knows_the_token_and_does_not_say_who_it_is_is_refused(hub, said):
    channel = connect(hub.host, hub.port, TOKEN)
    channel._connection.send_bytes(said)
    with contextlib.closing(channel), pytest.raises(EOFError):
        channel.receive(10.0)
    until(lambda: hub.refused == 1)
    joins(hub)


def test_a_worker_that_talks_nonsense_is_gone(hub):
    channel = connect(hub.host, hub.port, TOKEN)
    with contextlib.closing(channel):
        channel.send(HELLO)
        assert hub.hear(10.0).message == HELLO
        channel._connection.send_bytes(b"\x82\xa4type\xa4Beat\xa1x" + b"\x91" * 100_000)
        assert hub.hear(10.0).message is None
    joins(hub)


def test_sending_to_a_worker_that_does_not_read_ends_and_it_is_gone(monkeypatch, hub):
    monkeypatch.setattr(channels, "PATIENCE_S", 0.3)
    with contextlib.closing(connect(hub.host, hub.port, TOKEN)) as channel:
        channel.send(HELLO)
        assert hub.hear(10.0).message == HELLO
        large = Drive(
            generation=0, ids=bytes(2**26), batch=1, length=2**23, micro_batches=1, steps=0, first_step=0
        )  # of 64 MiB
        assert not hub.send("n0", large)
        assert hub.hear(10.0).message is None
    assert not hub.send("n0", message.Stop())


def test_a_long_message_on_its_way_is_a_sign_of_life(hub):
    with contextlib.closing(connect(hub.host, hub.port, TOKEN)) as channel:
        channel.send(HELLO)
        assert hub.hear(10.0).message == HELLO
        end, longest = time.monotonic() + 1.0, 0.0
        os.write(channel.fileno(), struct.pack("!i", 1_000_000))
        while time.monotonic() < end:
            os.write(channel.fileno(), bytes(10))
            time.sleep(0.01)
            longest = max(longest, hub.silent_s("n0"))
        assert longest < 0.7
        until(lambda: hub.silent_s("n0") > 0.9)  # and then nothing more


@pytest.fixture
def impostor():
    """Return a function from what a false coordinator does with a connection to where it listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve(act):
            def one():
                with contextlib.suppress(OSError, EOFError), listening.accept()[0] as peer:
                    act(peer)

            threading.Thread(target=one, daemon=True).start()
            return listening.getsockname()

        yield serve


def _accepts_everything(peer):
    with contextlib.closing(Connection(os.dup(peer.fileno()))) as connection:
        connection.send_bytes(bytes(32))
        proof = connection.recv_bytes()
        connection.recv_bytes()
        connection.send_bytes(proof)  # the worker's own, back again
        connection.recv_bytes()


def test_a_worker_refuses_a_coordinator_that_does_not_know_the_token(impostor):
    with pytest.raises(ClusterError, match=r"\[wrong-token\]"):
        connect(*impostor(_accepts_everything), TOKEN)
    with pytest.raises(ClusterError, match=r"\[wrong-token\]"):
        connect(*impostor(lambda peer: accept(as_connection(peer.dup()), "another")), TOKEN)


def test_a_worker_that_reaches_no_coordinator_says_so(monkeypatch, impostor):
    monkeypatch.setattr(channels, "PATIENCE_S", 0.2)
    with pytest.raises(ClusterError, match=r"does not say who it is.*\[no-coordinator\]"):
        connect(*impostor(lambda peer: None), TOKEN)
    with pytest.raises(ClusterError, match=r"does not say who it is.*\[no-coordinator\]"):
        connect(*impostor(lambda peer: peer.recv(1)), TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = gone.getsockname()
    with pytest.raises(ClusterError, match=r"Cannot reach.*\[no-coordinator\]"):
        connect(*address, TOKEN)


def test_two_hubs_cannot_have_one_port(hub):
    with pytest.raises(ClusterError, match=r"\[cannot-listen\]"):
        Hub(hub.host, hub.port, TOKEN, [])


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_are_told_as_such(data):
    with contextlib.suppress(msgspec.DecodeError):
        assert isinstance(decode(data), AnyMessage)


@given(st.data())
def test_messages_with_bytes_changed_or_cut_are_told_as_such(data):
    whole = bytearray(encode(data.draw(st.sampled_from([HELLO, Beat(rss_bytes=5), StoreCall(op="get", keys=["a"])]))))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(msgspec.DecodeError):
        assert isinstance(decode(bytes(whole[: data.draw(st.integers(0, len(whole)))])), AnyMessage)


def test_a_message_that_nests_too_deep_is_none():
    with pytest.raises(msgspec.DecodeError):
        decode(b"\x82\xa4type\xa4Beat\xa1x" + b"\x91" * 100_000)


def call(keys, op, *names, **given):
    return keys.answer(StoreCall(op=op, keys=list(names), **given))


def test_keys_are_set_counted_compared_and_deleted():
    keys = Keys()
    call(keys, "set", "a", value=b"1")
    assert call(keys, "get", "a", timeout_s=0.0).value == b"1"
    assert [call(keys, "add", "n", amount=by).number for by in (2, 3, -1)] == [2, 5, 4]
    assert call(keys, "get", "n").value == b"4"
    assert call(keys, "check", "a", "n").ok
    assert not call(keys, "check", "a", "b").ok
    assert call(keys, "compare_set", "a", expected=b"0", value=b"2").value == b"1"
    assert call(keys, "compare_set", "a", expected=b"1", value=b"2").value == b"2"
    assert call(keys, "compare_set", "new", expected=b"x", value=b"y").value == b"x"
    assert not call(keys, "check", "new").ok
    assert call(keys, "compare_set", "new", value=b"y").value == b"y"
    assert call(keys, "delete", "a").ok
    assert not call(keys, "delete", "a").ok
    assert not call(keys, "get", "a").ok


def waiting(keys, op, *names):
    """Wait for keys in a thread; return a function that gives the answer."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(call(keys, op, *names, timeout_s=30.0)))
    thread.start()
    until(lambda: keys._changed._waiters)

    def answer():
        thread.join(10.0)
        return answers[0]

    return answer


@pytest.mark.parametrize("op", ["get", "wait"])
def test_who_waits_for_a_key_has_it_when_it_is_set(op):
    keys = Keys()
    answer = waiting(keys, op, "a", "b")
    call(keys, "set", "a", value=b"1")
    call(keys, "set", "b", value=b"2")
    assert (answer().ok, answer().value) == (True, b"1")


@pytest.mark.parametrize("op", ["get", "wait"])
def test_who_waits_for_a_key_of_a_group_that_is_over_waits_no_longer(op):
    keys = Keys()
    answer = waiting(keys, op, "a")
    keys.forget()
    assert not answer().ok
    assert not call(keys, op, "a", timeout_s=3600.0).ok  # nor who comes later
    call(keys, "set", "a", value=b"1")
    keys.begin()
    assert not call(keys, "check", "a").ok
    call(keys, "set", "a", value=b"1")
    assert call(keys, op, "a").ok


def test_the_engine_finds_its_keys_over_the_channel(hub):
    dist = pytest.importorskip("torch.distributed")
    with contextlib.closing(connect(hub.host, hub.port, TOKEN)) as channel:
        channel.send(Hello(addr="n0", pid=1, host="h", store=True))
        own = store_over(channel, 5.0)
        store = dist.PrefixStore("0/", own)
        store.set("a", "1")
        assert store.get("a") == b"1"
        assert store.add("n", 3) == 3
        assert store.check(["a", "n"])
        assert store.compare_set("a", "1", "2") == b"2"
        store.wait(["a"])
        assert store.delete_key("a")
        assert not store.check(["a"])
        hub.keys.forget()
        with pytest.raises(RuntimeError, match="given up"):
            own.get("a")


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="reads /proc")


@needs_proc
def test_the_coordinator_listens_on_this_machine_alone(hub):
    assert listening(os.getpid()) == [LOOPBACK]


def config(*addrs, heartbeat_s=5.0):
    nodes = tuple(NodeConfig(addr=addr) for addr in addrs)
    return ClusterConfig(model="m", nodes=nodes, heartbeat_s=heartbeat_s, launch_timeout_s=30.0)


@pytest.fixture
def coordinator():
    with contextlib.closing(Coordinator(config("n0", "n1"))) as it:
        yield it


def test_workers_start_wait_and_end_with_the_coordinator(coordinator):
    assert coordinator.start({"n0": None, "n1": None}) == {}
    assert set(coordinator.hub.hellos) == {"n0", "n1"}
    pids = [hello.pid for hello in coordinator.hub.hellos.values()]
    folder = coordinator.launcher.folder
    for pid in pids:
        assert coordinator._token.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    coordinator.close()
    assert not folder.exists()
    assert not any(lives(pid) for pid in pids)


def test_a_worker_that_left_by_itself_is_waited_for_until_it_has_come_to_the_order(coordinator):
    hub, answered = coordinator.hub, []
    with contextlib.closing(connect(hub.host, hub.port, coordinator._token)) as channel:
        channel.send(HELLO)
        until(lambda: hub.connected() == {"n0"})
        channel.send(Left(generation=-1, why="connection closed"))

        def answer():
            assert channel.receive(10.0) == Leave(generation=-1)
            until(hub._heard.empty)  # the earlier word has been taken
            answered.append(1)
            channel.send(Left(generation=-1))

        thread = threading.Thread(target=answer)
        thread.start()
        coordinator.leave(["n0"])
        assert answered
        thread.join()


def test_a_worker_may_be_silent_for_longer_while_it_builds():
    order = Build(folder="m", fingerprint="", start=0, stop=1, precision="bf16", device="cpu")
    with contextlib.closing(Coordinator(config("n0", heartbeat_s=0.2))) as coordinator:
        hub = coordinator.hub

        def lost(act):
            with contextlib.closing(connect(hub.host, hub.port, coordinator._token)) as channel:
                channel.send(HELLO)
                until(lambda: hub.connected() == {"n0"})
                with pytest.raises(NodeLost) as lost:
                    act()
            until(lambda: hub.connected() == set())
            coordinator.lost.clear()
            coordinator.look([])
            return lost.value.why["n0"]

        assert lost(lambda: coordinator.build({"n0": order})) == "hung: no sign of life for 1.2 s"
        assert lost(lambda: coordinator.leave(["n0"])) == "hung: no sign of life for 0.2 s"


def test_one_that_lives_and_gets_nowhere_is_told_from_a_broken_network(coordinator):
    def said(*left):
        return str(coordinator._too_late(["n0", "n1"], "drive", 60.0, dict.fromkeys(left, "timed out")))

    assert said("n0") == (
        "Cannot drive: n1 says that it lives, but n0 waited for it in vain: timed out. "
        "Look at its output, or raise timeout_s. [too-slow]"
    )
    assert "[broken-network]" in said("n0", "n1")
    assert said().startswith("Cannot drive: n0, n1 did not answer within 60 s")


def test_a_worker_that_ends_before_it_comes_is_named_with_its_last_word(coordinator, monkeypatch):
    monkeypatch.setattr(type(coordinator.meeting), "command", lambda self, addr: ["no-such-command"])
    with pytest.raises(NodeLost) as lost:
        coordinator.start({"n0": None})
    assert "ended with status 2 (" in lost.value.why["n0"]


def test_a_worker_whose_parent_is_another_process_ends():
    """In a container the coordinator's number is 1, so that alone tells nothing."""
    script = "from headway.cluster.worker import die_with_parent; import sys; die_with_parent(int(sys.argv[1]))"

    def status(parent):
        return subprocess.run([sys.executable, "-c", script, str(parent)], check=False).returncode

    assert (status(os.getpid()), status(1)) == (0, 3)


class _Clock:
    """The time of `time.monotonic`, and how far it has been put forward."""

    def __init__(self):
        self.ahead = 0.0

    def monotonic(self):
        return time.monotonic() + self.ahead

    def __getattr__(self, name):
        return getattr(time, name)


def test_a_coordinator_that_was_stopped_itself_loses_nobody(monkeypatch):
    clock = _Clock()
    with contextlib.closing(Coordinator(config("n0", heartbeat_s=1.0))) as coordinator:
        coordinator.start({"n0": None})
        monkeypatch.setattr(hubs, "time", clock)
        monkeypatch.setattr("headway.cluster.coordinator.time", clock)
        clock.ahead = 100.0  # as after a stop by Ctrl-Z: what was said meanwhile is not heard yet
        coordinator.look(["n0"])
        until(lambda: coordinator.hub.silent_s("n0") < 1)
        coordinator.look(["n0"])
        assert coordinator.lost == {}


def test_a_channel_is_closed_twice():
    near, far = socket.socketpair(socket.AF_UNIX)
    with far:
        channel = Channel(Connection(near.detach()))
        channel.close()
        channel.close()
        with pytest.raises((EOFError, OSError)):
            channel.receive()
