"""Files that are opened: links that were found and not given, what is no file, and what unpacks to too much."""

import gzip
import os

import pytest

from headway.sources import files


def test_a_link_is_opened_only_where_it_was_given(tmp_path):
    (tmp_path / "log").write_bytes(b"abc")
    link = tmp_path / "link"
    link.symlink_to("log")
    with files.regular(link) as fd:
        assert os.read(fd, 3) == b"abc"
    with pytest.raises(files.NotAFileError, match="a link, which is not followed"), files.regular(link, follow=False):
        pass


def test_a_file_that_becomes_a_link_while_it_is_opened_is_not_followed(tmp_path, monkeypatch):
    (tmp_path / "log").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("log")
    monkeypatch.setattr(files.Path, "is_symlink", lambda _: False)
    with pytest.raises(OSError, match="symbolic link"), files.regular(tmp_path / "link", follow=False):
        pass


def test_why_a_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "log").touch()
    assert [files.why_not(tmp_path / name) for name in ("log", "pipe", "zero", "gone")] == [
        "",
        "it is a pipe, not a file",
        "it is a link, which is not followed",
        "it is a link, which is not followed",
    ]
    with pytest.raises(FileNotFoundError):
        files.why_not(tmp_path / "nothing")


def test_what_unpacks_to_too_much_is_to_be_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_UNPACKED", 1 << 10)
    (tmp_path / "log.gz").write_bytes(gzip.compress(bytes(1 << 12)))
    with pytest.raises(files.TooLargeError) as caught, files.plain(tmp_path / "log.gz") as file:
        file.read()
    assert "gunzip" in files.next_step(caught.value)
    assert files.next_step(PermissionError(13, "Permission denied")) == "Make it readable"
