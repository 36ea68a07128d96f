"""Links: no file is read through one that leads out of the folder, whoever made it and when."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ga_dspy import Index
from ga_dspy.errors import InputError
from ga_dspy.retrieval import read_files
from ga_dspy.retrieval.read import Sources

SECRET = "The secret of the vault is 7319."


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A folder with a document, beside a secret."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text(SECRET)
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.txt").write_text("The bridge is red.")
    return docs


def lines(docs: Path) -> dict[str, str]:
    found = read_files(docs)
    assert SECRET not in "".join(passage.text for passage in found.passages)
    return {file.name: str(file).partition(": ")[2] for file in found.files}


def test_no_link_in_a_folder_is_followed(docs: Path) -> None:
    secret = docs.parent / "outside" / "secret.txt"
    (docs / "plain.txt").symlink_to(secret)
    (docs / "relative.txt").symlink_to("../outside/secret.txt")
    (docs / "to-link.txt").symlink_to("plain.txt")
    (docs / "up.txt").symlink_to(f"../docs/../outside/{secret.name}")
    (docs / "folder").symlink_to(secret.parent)
    (docs / ".hidden.txt").write_text(SECRET)
    (docs / "inside.txt").symlink_to(".hidden.txt")
    (docs / "loop.txt").symlink_to("loop.txt")
    out = "left out (a link that leads out of the folder)"
    found = lines(docs)
    assert found.pop("a.txt") == "read (1 passage)"
    assert found.pop("inside.txt") == "left out (a link to a file of the folder)"
    assert found.pop("loop.txt") == "unread (a broken link)"
    assert found.pop(".hidden.txt") == "left out (hidden)"
    assert set(found.values()) == {out} and len(found) == 5


def test_a_gitignore_that_is_a_link_or_a_pipe_is_not_read(docs: Path) -> None:
    os.mkfifo(docs / ".gitignore")
    assert lines(docs)["a.txt"] == "read (1 passage)"


@pytest.mark.parametrize("name", ["link.txt", "folder"])
def test_a_given_link_may_not_lead_out_of_its_folder(docs: Path, name: str) -> None:
    outside = docs.parent / "outside"
    (docs / "link.txt").symlink_to(outside / "secret.txt")
    (docs / "folder").symlink_to(outside)
    for paths in (docs / name, sorted(docs.glob("*"))):
        with pytest.raises(InputError, match="leads out of the folder that contains it"):
            read_files(paths)
    (docs / "b.txt").symlink_to("a.txt")
    (docs.parent / "current").symlink_to("docs")
    assert len(read_files(docs / "b.txt").passages) == 1
    assert read_files(docs.parent / "current").passages


def test_a_sync_does_not_follow_a_link_that_replaced_a_file(docs: Path, tmp_path: Path) -> None:
    sources = Sources(paths=("../docs", "../docs/a.txt"))
    folder = tmp_path / "index"
    index = Index.build(sources.read(folder).passages, folder, kind="sparse")
    (docs / "a.txt").unlink()
    (docs / "a.txt").symlink_to("../outside/secret.txt")
    with pytest.raises(InputError, match="leads out of the folder"):
        sources.read(folder, index)


@pytest.mark.parametrize("swapped", ["file", "folder"])
def test_a_link_created_while_files_are_read_is_not_followed(
    docs: Path, swapped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = docs.parent / "outside"
    (outside / "a.txt").write_text(SECRET)
    (docs / "sub").mkdir()
    (docs / "sub" / "a.txt").write_text("A bridge.")

    def swap(stage: str, done: int, count: int) -> None:
        if (docs / "sub").is_symlink() or (docs / "sub" / "a.txt").is_symlink():
            return
        (docs / "sub" / "a.txt").unlink()
        if swapped == "folder":
            (docs / "sub").rmdir()
            (docs / "sub").symlink_to(outside)
        else:
            (docs / "sub" / "a.txt").symlink_to(outside / "a.txt")

    found: Any = read_files(docs, progress=swap)
    assert [passage.text for passage in found.passages] == ["The bridge is red."]
    line = str(found.files[-1])
    assert line == "sub/a.txt: unread (a link that leads out of the folder)"
