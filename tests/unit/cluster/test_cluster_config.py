"""What a cluster is told: the defaults, every refusal with its place, and the documented keys."""

import dataclasses
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.cluster.config import PRECISIONS, ClusterConfig, NodeConfig, PlacementConfig
from headway.errors import ArgumentError

DOCS = Path(__file__).parents[3] / "docs" / "cluster.md"
FULL = """
model = "llama"
seq = 16
rng_seed = 7
reserve_ram_gb = 0
listen = "0.0.0.0"
port = 7000
launcher = "torchrun"
heartbeat_s = 1
timeout_s = 2.5
launch_timeout_s = 30
threads = 2
log_dir = "logs"

[placement]
policy = "manual"
optimize = "latency"
context = 128
kv_bytes_per_token = 512
precision_ladder = ["fp32", "bf16", "fp16", "int8"]
assume_gflops = 3
assume_ram_gb = 1.5

[[node]]
addr = "n1"
ssh = "me@far"
ckpt_dir = "there"
device = "cuda:1"
precision = "int8"
kv_cache = false
max_ram_gb = 4
layers = "0:8"

[[node]]
addr = "n2"
role = "standby"
standby_for = "n1"
ckpt_dir = "here"
"""


def read(top="", placement="", node="", second=""):
    """A config of two nodes, with lines added to its tables."""
    nodes = f'[[node]]\naddr = "n1"\n{node}\n[[node]]\naddr = "n2"\n{second}\n'
    return ClusterConfig.from_toml(f'model = "m"\n{top}\n[placement]\n{placement}\n{nodes}')


def test_the_defaults():
    config = ClusterConfig.from_toml('model = "m"\n[[node]]\naddr = "n0"')
    assert config == ClusterConfig(model="m", nodes=(NodeConfig(addr="n0"),))
    assert (config.seq, config.rng_seed, config.reserve_ram_gb, config.listen) == (8, 0, 6.0, "127.0.0.1")
    assert (config.launcher, config.heartbeat_s, config.timeout_s, config.launch_timeout_s) == ("local", 5, 60, 120)
    assert config.placement == PlacementConfig(policy="ram_balanced", context=4096)
    assert config.nodes[0] == NodeConfig(addr="n0", device="cpu", precision="bf16", kv_cache=True, role="active")


def test_every_key_is_read_into_its_own_type():
    config = ClusterConfig.from_toml(FULL)
    assert config == ClusterConfig.from_toml(b"\xef\xbb\xbf" + FULL.encode().replace(b"\n", b"\r\n"))
    assert (config.reserve_ram_gb, type(config.reserve_ram_gb)) == (0.0, float)
    assert config.placement.precision_ladder == ("fp32", "bf16", "fp16", "int8")
    first, second = config.nodes
    assert (first.layers, first.max_ram_gb, first.kv_cache, first.ssh) == (range(8), 4.0, False, "me@far")
    assert (second.role, second.standby_for, second.layers) == ("standby", "n1", None)
    assert config.active == (first,)


def test_paths_are_relative_to_the_file(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text(FULL)
    config = ClusterConfig.from_path(path)
    assert config.model == str(tmp_path / "llama")
    assert config.log_dir == str(tmp_path / "logs")
    assert [one.ckpt_dir for one in config.nodes] == ["there", str(tmp_path / "here")]
    path.write_text('model = "/abs"\n[[node]]\naddr = "n0"')
    config = ClusterConfig.from_path(str(path))
    assert (config.model, config.log_dir, config.nodes[0].ckpt_dir) == ("/abs", None, None)


def test_a_later_change_of_the_working_folder_changes_no_path(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    Path("cluster.toml").write_text(FULL)
    made = ClusterConfig(model="m/llama", log_dir="logs", nodes=[NodeConfig(addr="n1", ckpt_dir="here")])
    for config in (made, ClusterConfig.from_toml(FULL), ClusterConfig.from_path("cluster.toml")):
        assert config.model == str(tmp_path / "there" / ("m/llama" if config is made else "llama"))
        assert config.log_dir == str(tmp_path / "there" / "logs")
        assert config.nodes[-1].ckpt_dir == str(tmp_path / "there" / "here")
        monkeypatch.chdir(tmp_path)
        assert dataclasses.replace(config, seq=3).model == config.model
        monkeypatch.chdir(tmp_path / "there")
    monkeypatch.setenv("HOME", "/home/me")
    assert ClusterConfig.from_toml('model = "~/m"\n[[node]]\naddr = "n0"').model == "/home/me/m"
    assert ClusterConfig.from_toml(FULL).nodes[0].ckpt_dir == "there"  # on another machine


@pytest.mark.parametrize("key", ["model", "log_dir", "ckpt_dir"])
def test_a_home_folder_that_is_not_known_is_named(key, tmp_path):
    top = 'model = "m"\nlog_dir = "l"\n[[node]]\naddr = "n0"\nckpt_dir = "c"\n'
    text = top.replace(f'{key} = "', f'{key} = "~nobodyxyz/')
    path = tmp_path / "c.toml"
    path.write_text(text)
    found = rf"{key} is '~nobodyxyz/.'; allowed is a path, in which ~ and ~name are known home folders"
    with pytest.raises(ArgumentError, match=rf"Cannot read the config: .*{found}"):
        ClusterConfig.from_toml(text)
    with pytest.raises(ArgumentError, match=rf"Cannot read .*c\.toml: .*{found}"):
        ClusterConfig.from_path(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ArgumentError, match=r"none\.toml: there is nothing.*\[no-such-path\]"):
        ClusterConfig.from_path(tmp_path / "none.toml")
    with pytest.raises(ArgumentError, match=r"Is a directory.*\[unreadable-path\]"):
        ClusterConfig.from_path(tmp_path)
    with pytest.raises(ArgumentError, match=r"\[unreadable-path\]"):
        ClusterConfig.from_path("a\0b")
    path = tmp_path / "cluster.toml"
    path.write_text('model = "m"\nseq = 0')
    with pytest.raises(ArgumentError, match=r"Cannot read .*cluster\.toml: seq is 0; allowed is a whole number from 1"):
        ClusterConfig.from_path(path)


@pytest.mark.parametrize(
    "text",
    ['model = "m"\nseq =\n#', 'model = "m"\nmodel = "n"\n#', b"\xff", "a = " + "[" * 100_000, "a = " + "9" * 5000],
)
def test_what_is_no_toml_says_where(text):
    with pytest.raises(ArgumentError, match=r"Cannot read the config: no TOML.*\[bad-toml\]") as caught:
        ClusterConfig.from_toml(text)
    if isinstance(text, str) and "\n" in text:
        assert "line 2" in str(caught.value)


BAD = [
    ("top", "", "sed = 3", "'sed' is no key", "Give seq if that was meant"),
    ("top", "", '"\\u001b[2J" = 3', "is no key", "Give one of these"),
    *[("top", "", f"seq = {one}", "seq is ", "") for one in ("0", "-1", "1.5", "true", '"8"', "[8]", "1979-05-27")],
    *[("top", "", f"reserve_ram_gb = {one}", "reserve_ram_gb is ", "") for one in ("-1", "nan", "inf", "true", '"6"')],
    *[("top", "", f"timeout_s = {one}", "timeout_s is ", "") for one in ("0", "-0.0", "-5", "nan", "inf")],
    ("top", "", "heartbeat_s = 0", "heartbeat_s is 0; allowed is a number above 0 [s]", ""),
    ("top", "", "launch_timeout_s = 0", "launch_timeout_s is 0", ""),
    *[
        ("top", "", f"{key} = {one}", "; allowed is a number above 0 [s], at most 86400", "")
        for key in ("heartbeat_s", "timeout_s", "launch_timeout_s")
        for one in ("86401", "1e12", "1e308")
    ],
    ("top", "", "threads = 1025", "threads is 1025; allowed is a whole number from 1 to 1024", ""),
    ("top", "", "rng_seed = -1", "rng_seed is -1", ""),
    ("top", "", "port = 65536", "port is 65536; allowed is a whole number from 0 to 65535", ""),
    ("top", "", "threads = 0", "threads is 0", ""),
    ("top", "", 'log_dir = ""', "log_dir is ''", ""),
    ("top", "", 'listen = "a b"', "listen is 'a b'", ""),
    ("top", "", 'launcher = "Ray"', "launcher is 'Ray'; allowed is one of local, torchrun, ray", "Give ray if"),
    ("placement", "placement: ", 'policy = "manul"', "policy is 'manul'", "Give manual if that was meant"),
    ("placement", "placement: ", 'polcy = "manual"', "'polcy' is no key", "Give policy if that was meant"),
    ("placement", "placement: ", 'optimize = "speed"', "one of throughput, latency, memory", ""),
    ("placement", "placement: ", "context = 0", "context is 0", ""),
    ("placement", "placement: ", "kv_bytes_per_token = 0", "kv_bytes_per_token is 0", ""),
    ("placement", "placement: ", "assume_gflops = 0", "assume_gflops is 0; allowed is a number above 0 [GFLOP/s]", ""),
    ("placement", "placement: ", "assume_ram_gb = inf", "assume_ram_gb is inf", ""),
    *[
        ("placement", "placement: ", f"precision_ladder = {one}", "precision_ladder is ", "")
        for one in ('["int8", "bf16"]', '["bf16", "bf16"]', '["int4"]', '"bf16"', "[8]", "[[]]")
    ],
    ("node", 'node[1] "n1": ', 'precision = "bf61"', "precision is 'bf61'", "Give bf16 if that was meant"),
    ("second", 'node[2] "n2": ', 'precision = "int4"', "allowed is one of fp32, fp16, bf16, int8", ""),
    ("second", 'node[2] "n2": ', "precison = 1", "'precison' is no key", "Give precision if that was meant"),
    *[("node", 'node[1] "n1": ', f"max_ram_gb = {one}", "max_ram_gb is", "") for one in ("0", "-1", "nan", "inf")],
    ("node", 'node[1] "n1": ', "max_ram_gb = 1" + "0" * 400, "max_ram_gb is 1", ""),
    *[("node", 'node[1] "n1": ', f'device = "{one}"', "device is", "") for one in ("gpu", "cuda:", "cuda:x", "CPU")],
    *[("node", 'node[1] "n1": ', f'ssh = "{one}"', "ssh is", "") for one in ("-oProxyCommand=x", "a b", "")],
    ("node", 'node[1] "n1": ', "kv_cache = 1", "kv_cache is 1; allowed is true or false", ""),
    ("node", 'node[1] "n1": ', 'ckpt_dir = "a\\u001b[2J"', "ckpt_dir is", ""),
    *[
        ("node", 'node[1] "n1": ', f'layers = "{one}"', "layers is", "")
        for one in ("3:3", "4:2", "1.2", "1...2", "2..2", ":", "-1:2")
    ],
    ("node", 'node[1] "n1": ', "layers = [0, 4]", "layers is [0, 4]", ""),
    ("node", 'node[1] "n1": ', 'layers = "0:4"', "layers is '0:4'", 'Give policy = "manual" in [placement]'),
    ("placement", 'node[1] "n1": ', 'policy = "manual"', 'layers is missing; allowed is layers "a:b"', ""),
    ("second", 'node[2] "n2": ', 'role = "standy"', "role is 'standy'", "Give standby if that was meant"),
    ("second", 'node[2] "n2": ', 'standby_for = "n1"', "standby_for is 'n1'; allowed is none for a node with role", ""),
    ("second", 'node[2] "n2": ', 'role = "standby"\nstandby_for = "n3"', "an active node: n1", ""),
    ("second", 'node[2] "n2": ', 'role = "standby"\nstandby_for = "n2"', "standby_for is 'n2'", ""),
]


@pytest.mark.parametrize(
    ("table", "where", "line", "found", "step"), BAD, ids=[f"{one[0]}: {one[2][:40]!r}" for one in BAD]
)
def test_a_bad_value_is_named_with_its_place(table, where, line, found, step):
    with pytest.raises(ArgumentError) as caught:
        read(**{table: line})
    assert caught.value.what.startswith(f"Cannot read the config: {where}")
    assert found in caught.value.what
    assert caught.value.next_step.startswith(step or "Give ")
    assert caught.value.slug in {"bad-config", "unknown-key"}
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "model is missing"),
        ("model = 3", "model is 3; allowed is a path"),
        ('model = "m"', "no node is active"),
        ('model = "m"\nnode = 3', r"node is 3; allowed is tables \[\[node\]\]"),
        ('model = "m"\n[node]\naddr = "n1"', r"node is {'addr': 'n1'}; allowed is tables \[\[node\]\]"),
        ('model = "m"\nnode = [3]', r"node is 3; allowed is a table \[\[node\]\]"),
        ('model = "m"\nplacement = "auto"', r"placement is 'auto'; allowed is a table \[placement\]"),
        ('model = "m"\n[[node]]', r"node\[1\]: addr is missing"),
        ('model = "m"\n[[node]]\naddr = ""', r'node\[1\] "": addr is \'\''),
        ('model = "m"\n[[node]]\naddr = "a"\nrole = "standby"', "no node is active"),
        (
            'model = "m"\n[[node]]\naddr = "a"\n[[node]]\naddr = "a"',
            r'node\[2\] "a": addr is \'a\'; .* no other node has. Give each',
        ),
        ('model = "m"\nnodes = []', "'nodes' is no key"),
    ],
)
def test_what_is_missing_or_contradicts_is_named(text, found):
    with pytest.raises(ArgumentError, match=found):
        ClusterConfig.from_toml(text)


def test_a_standby_of_a_manual_placement_has_no_layers_and_a_draining_node_may():
    manual = 'policy = "manual"'
    with pytest.raises(ArgumentError, match=r'node\[2\] "n2": layers is .0:4.; allowed is none: a standby'):
        read(placement=manual, node='layers = "0:4"', second='layers = "0:4"\nrole = "standby"')
    assert read(placement=manual, node='layers = "0:4"', second='role = "draining"').nodes[1].layers is None
    assert len(read(second='role = "standby"').active) == 1


def test_layers_are_read_as_they_are_shown():
    assert read(placement='policy = "manual"', node='layers = "0:4"', second='layers = "4..8"').nodes[
        1
    ].layers == range(4, 8)


def test_a_standby_of_a_misspelt_node_hears_the_likely_one():
    nodes = "".join(f'[[node]]\naddr = "{addr}"\n' for addr in ("east 1", "west 1", "spare"))
    with pytest.raises(ArgumentError, match=r'node\[3\] "spare": .*Give west 1 if that was meant'):
        ClusterConfig.from_toml(f'model = "m"\n{nodes}role = "standby"\nstandby_for = "west1"')


def test_a_config_made_in_python_is_checked_as_well():
    with pytest.raises(ArgumentError, match="node: precision is 'int4'"):
        NodeConfig(addr="a", precision="int4")
    with pytest.raises(ArgumentError, match="no node is active"):
        ClusterConfig(model="m")
    with pytest.raises(ArgumentError, match="nodes is"):
        ClusterConfig(model="m", nodes=[{"addr": "a"}])
    with pytest.raises(ArgumentError, match="placement is"):
        ClusterConfig(model="m", placement=None)
    config = ClusterConfig(model="m", nodes=[NodeConfig(addr="a")])
    assert dataclasses.replace(config, seq=3).nodes == config.nodes == (NodeConfig(addr="a"),)


keys = st.sampled_from(["model", "seq", "placement", "node", "port", "addr", "policy", "threads", "log_dir", "x"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(keys, values))
def test_any_table_is_a_config_or_one_clear_error(table):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tomllib, "loads", lambda text: {key: value for key, value in table.items() if value is not None})
        try:
            ClusterConfig.from_toml("")
        except ArgumentError as error:
            assert str(error).startswith("Cannot read the config: ")  # noqa: PT017


def test_the_documented_keys_and_defaults_are_those_of_the_config():
    _, _, text = DOCS.read_text().partition("\n## Configuration\n")
    tables = re.split(r"\n### ", text.split("\n## ")[0])[1:]
    for table, cls in zip(tables, (ClusterConfig, PlacementConfig, NodeConfig), strict=True):
        documented = re.findall(r"^\| `(\w+)` \| (needed|none|`[^`]*`) \|", table, re.MULTILINE)
        assert [key for key, _ in documented] == [
            one.name for one in dataclasses.fields(cls) if one.name not in {"placement", "nodes"}
        ]
        defaults = {one.name: one.default for one in dataclasses.fields(cls)}
        for key, told in documented:
            missing = {"needed": dataclasses.MISSING, "none": None}
            default = missing[told] if told in missing else tomllib.loads(f"v = {told[1:-1]}")["v"]
            assert defaults[key] == (tuple(default) if isinstance(default, list) else default), key


def test_the_documented_examples_are_configs():
    examples = re.findall(r"```toml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    told = [[one.addr for one in ClusterConfig.from_toml(example).active] for example in examples]
    assert told == [["alpha", "beta"], ["n0", "n1"]]


def test_a_precision_has_its_width():
    assert PRECISIONS == {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1}
