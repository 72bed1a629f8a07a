"""A checkpoint is known by its headers: what is read, and each way in which files can be wrong."""

import json
import pickle

import pytest

from headway.cluster.checkpoint import Checkpoint
from headway.errors import ClusterError

CONFIG = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 4, "vocab_size": 8}
NAMES = ["model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight", "model.layers.1.mlp.up_proj.weight"]


def header_of(shapes, dtype="BF16"):
    entries, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * shape[1]
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    return entries, at


def write(path, entries, n_data, length=None):
    raw = json.dumps(entries).encode() if isinstance(entries, dict) else entries
    path.write_bytes((len(raw) if length is None else length).to_bytes(8, "little") + raw + bytes(n_data))


def save(folder, names=NAMES, config=CONFIG):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    write(folder / "model.safetensors", *header_of({key: [4, 3] for key in names}))
    return folder


def save_sharded(folder, index=None):
    save(folder)
    (folder / "model.safetensors").unlink()
    write(folder / "a.safetensors", *header_of({key: [4, 3] for key in NAMES[:2]}))
    write(folder / "b.safetensors", *header_of({NAMES[2]: [4, 3]}))
    homes = {NAMES[0]: "a.safetensors", NAMES[1]: "a.safetensors", NAMES[2]: "b.safetensors"} | (index or {})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": homes}))
    return folder


def refused(folder, slug):
    with pytest.raises(ClusterError) as caught:
        Checkpoint.open(folder)
    assert caught.value.slug == slug
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    return str(caught.value)


def test_one_file_gives_tensors_config_and_layers(tmp_path):
    checkpoint = Checkpoint.open(save(tmp_path))
    assert (checkpoint.architecture, checkpoint.n_layers) == ("LlamaForCausalLM", 2)
    assert sorted(checkpoint.tensors) == sorted(NAMES)
    tensor = checkpoint.tensors[NAMES[0]]
    assert (tensor.file, tensor.dtype, tensor.shape, tensor.nbytes) == (
        tmp_path / "model.safetensors",
        "BF16",
        (4, 3),
        24,
    )
    assert [Checkpoint.layer_of(name) for name in NAMES] == [None, 0, 1]


def test_shards_give_the_same_tensors_and_fingerprint(tmp_path):
    whole, shards = Checkpoint.open(save(tmp_path / "a")), Checkpoint.open(str(save_sharded(tmp_path / "b")))
    assert list(whole.tensors) == list(shards.tensors)
    assert shards.tensors[NAMES[2]].file.name == "b.safetensors"
    assert whole.fingerprint == shards.fingerprint
    assert len(whole.fingerprint) == 16
    other = Checkpoint.open(save(tmp_path / "c", config=CONFIG | {"vocab_size": 9}))
    assert whole.fingerprint != other.fingerprint


def test_what_safetensors_writes_is_read(tmp_path):
    torch = pytest.importorskip("torch")
    save_file = pytest.importorskip("safetensors.torch").save_file
    save(tmp_path)
    made = {name: torch.zeros(5, 3, dtype=torch.float16) for name in NAMES} | {"scalar": torch.tensor(1)}
    save_file(made, tmp_path / "model.safetensors", metadata={"format": "pt"})
    read = Checkpoint.open(tmp_path).tensors
    assert {name: (tensor.shape, tensor.nbytes) for name, tensor in read.items()} == {
        name: (tuple(tensor.shape), tensor.nbytes) for name, tensor in made.items()
    }


def test_missing_files_are_named(tmp_path):
    assert "no such folder" in refused(tmp_path / "none", "no-checkpoint")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert "no model.safetensors" in refused(tmp_path, "no-checkpoint")
    (tmp_path / "pytorch_model.bin").touch()
    assert "save_pretrained" in refused(tmp_path, "pickled-weights")
    (tmp_path / "config.json").unlink()
    assert "no config.json" in refused(tmp_path, "no-checkpoint")


@pytest.mark.parametrize(
    "config",
    ["{", "[]", "\xff", "[" * 100_000, json.dumps({"num_hidden_layers": 2}), *(
        json.dumps(CONFIG | {"num_hidden_layers": n}) for n in (None, 0, -1, True, 2.0, 10**9)
    ), json.dumps(CONFIG | {"architectures": []})],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_a_config_without_its_facts_is_refused(tmp_path, config):
    save(tmp_path)
    (tmp_path / "config.json").write_bytes(config.encode("latin-1"))
    assert "config.json" in refused(tmp_path, "bad-checkpoint")


@pytest.mark.parametrize("keep", [0, 4, 8, 9, 100, -1])
def test_a_torn_file_is_named(tmp_path, keep):
    path = save(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    assert "model.safetensors" in refused(tmp_path, "torn-weights")


def test_one_byte_too_many_is_refused(tmp_path):
    path = save(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes() + b"x")
    assert "need 72 bytes of data; 73 are there" in refused(tmp_path, "torn-weights")


@pytest.mark.parametrize("length", [0, 1, 10**6, 2**63, 2**64 - 1])
def test_a_header_beyond_its_limits_is_not_read(tmp_path, length):
    write(save(tmp_path) / "model.safetensors", {}, 24, length)
    refused(tmp_path, "torn-weights")


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "BF16", "shape": [4, 3], "data_offsets": [1, 25]},
        {"dtype": "BF16", "shape": [4, 3], "data_offsets": [24, 0]},
        {"dtype": "BF16", "shape": [4, 3], "data_offsets": [0, 48]},
        {"dtype": "BF16", "shape": [4, 3], "data_offsets": [-24, 0]},
        {"dtype": "BF16", "shape": [-4, -3], "data_offsets": [0, 24]},
        {"dtype": "BF16", "shape": [4, 3.5], "data_offsets": [0, 24]},
        {"dtype": "BF16", "shape": [4, 4], "data_offsets": [0, 24]},
        {"dtype": "F32", "shape": [4, 3], "data_offsets": [0, 24]},
        {"dtype": "F4", "shape": [4, 3], "data_offsets": [0, 24]},
        {"dtype": "BF16", "shape": [4, 3], "data_offsets": [0, 24, 24]},
        {"dtype": "BF16", "shape": [4, 3]},
        [],
        None,
    ],
    ids=str,
)
def test_a_tensor_that_is_not_what_its_file_holds_is_refused(tmp_path, entry):
    write(save(tmp_path) / "model.safetensors", {NAMES[0]: entry}, 24)
    refused(tmp_path, "torn-weights")


@pytest.mark.parametrize("raw", [b"[]", b"{}x", b'{"a":', b"\xff\xff", b'{"a":' * 50_000])
def test_a_header_that_is_no_object_is_refused(tmp_path, raw):
    write(save(tmp_path) / "model.safetensors", raw, 0)
    refused(tmp_path, "torn-weights")


def test_overlapping_tensors_are_refused(tmp_path):
    entries, n_data = header_of({key: [4, 3] for key in NAMES})
    entries[NAMES[1]]["data_offsets"] = [0, 24]
    write(save(tmp_path) / "model.safetensors", entries, n_data)
    assert "ends at 24" in refused(tmp_path, "torn-weights")


@pytest.mark.parametrize(
    "name", ["../a.safetensors", "/etc/passwd", "..", ".", "", "a\\b", "sub/a.safetensors", 3, None, []]
)
def test_a_shard_outside_the_folder_is_refused(tmp_path, name):
    save_sharded(tmp_path / "model", {NAMES[2]: name})
    write(tmp_path / "a.safetensors", *header_of({NAMES[2]: [4, 3]}))
    assert "same folder" in refused(tmp_path / "model", "bad-checkpoint")


@pytest.mark.parametrize("name", ["a" * 300, "\N{SNOWMAN}" * 100, "a" * 100_000])
def test_a_shard_of_a_name_no_file_has_is_refused(tmp_path, name):
    save_sharded(tmp_path, {NAMES[2]: name})
    assert f"it names a shard by {len(name)} characters" in refused(tmp_path, "bad-checkpoint")


def test_a_folder_of_a_name_none_has_is_refused(tmp_path):
    assert "File name too long" in refused(tmp_path / ("a" * 300), "no-checkpoint")


def test_a_missing_shard_is_named(tmp_path):
    (save_sharded(tmp_path) / "b.safetensors").unlink()
    assert "b.safetensors, which is not there" in refused(tmp_path, "missing-shard")


def test_an_index_that_contradicts_its_shards_is_refused(tmp_path):
    save_sharded(tmp_path, {NAMES[2]: "a.safetensors"})
    assert "model.layers.1" in refused(tmp_path, "bad-checkpoint")
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    assert "weight_map" in refused(tmp_path, "bad-checkpoint")


def test_layers_unlike_the_config_are_named(tmp_path):
    save(tmp_path, config=CONFIG | {"num_hidden_layers": 20})
    assert "no tensor of layer 2, 3, 4, 5, 6, 7, 8, 9 and 10 more" in refused(tmp_path, "unlike-layers")
    save(tmp_path, config=CONFIG | {"num_hidden_layers": 1})
    assert "layer 1 beyond the last; num_hidden_layers is 1" in refused(tmp_path, "unlike-layers")
