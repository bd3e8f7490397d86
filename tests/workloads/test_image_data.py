"""Folders of images are read and split, the digits are exported, and a user's mistakes are named."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image
from workloads.images import (
    DataError,
    ImageFiles,
    cache_folder,
    digits_folder,
    find_images,
    read_image,
    split_stratified,
    spread,
)

KILLED = """
import os, signal, sys
from pathlib import Path
from PIL import Image
from benchmarks.workloads.images import digits_folder

Image.Image.save = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
digits_folder(Path(sys.argv[1]))
"""


def numbered(labels: list[int]) -> ImageFiles:
    """Return images that do not exist, named by their place."""
    return ImageFiles(
        paths=tuple(Path(str(place)) for place in range(len(labels))),
        labels=tuple(labels),
        classes=tuple(str(label) for label in sorted(set(labels))),
    )


def test_digits_are_exported_complete_even_by_two_at_once(tmp_path: Path) -> None:
    """Two exports at once leave one complete folder and nothing else."""
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(digits_folder, [tmp_path, tmp_path])
    assert first == second
    images = find_images(first)
    assert 1797 == len(images)
    assert tuple("0123456789") == images.classes
    assert ["digits"] == [entry.name for entry in tmp_path.iterdir()]
    assert (8, 8) == read_image(images.paths[0]).size


def test_digits_are_exported_once(tmp_path: Path) -> None:
    """A folder that is there is used as it is."""
    (tmp_path / "digits").mkdir()
    assert [] == list(digits_folder(tmp_path).iterdir())


def test_what_a_killed_process_had_begun_goes_away(tmp_path: Path) -> None:
    """The next one removes it and exports all images."""
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    begun = [path.name for path in tmp_path.iterdir()]

    digits = digits_folder(tmp_path)

    assert (-signal.SIGKILL, 2) == (killed.returncode, len(begun))
    assert ["digits"] == [path.name for path in tmp_path.iterdir()]
    assert 10 == len([*digits.iterdir()])


def test_cache_honours_the_xdg_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The cache lies under XDG_CACHE_HOME where that is set, else under ~/.cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tmp_path in cache_folder().parents
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert Path.home() / ".cache" in cache_folder().parents


def test_images_of_any_folder_tree_are_found_by_class(tmp_path: Path) -> None:
    """Subfolders are classes; images of several formats are found, other files are left out."""
    for name in ("cats/a.png", "cats/b.JPG", "dogs/c.bmp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 3)).save(tmp_path / name)
    (tmp_path / "cats" / "notes.txt").write_text("no image")
    images = find_images(tmp_path)
    assert ["a.png", "b.JPG", "c.bmp"] == [path.name for path in images.paths]
    assert (0, 0, 1) == images.labels
    assert ("cats", "dogs") == images.classes
    assert "L" == read_image(images.paths[0]).mode


def test_images_are_read_grey_or_coloured(tmp_path: Path) -> None:
    """A coloured file keeps its colours in mode RGB, and a grey one has three equal levels there."""
    Image.new("RGB", (4, 3), (255, 0, 9)).save(tmp_path / "coloured.png")
    Image.new("L", (4, 3), 7).save(tmp_path / "grey.png")
    assert (255, 0, 9) == read_image(tmp_path / "coloured.png", "RGB").getpixel((0, 0))
    assert (7, 7, 7) == read_image(tmp_path / "grey.png", "RGB").getpixel((0, 0))
    assert 7 == read_image(tmp_path / "grey.png").getpixel((0, 0))


@pytest.mark.parametrize(
    ("folders", "found"),
    [([], "found no folder"), (["data"], "found no subfolder"), (["data", "data/cats"], "found none")],
)
def test_missing_images_are_named_in_one_line(tmp_path: Path, folders: list[str], found: str) -> None:
    """The message names the place, what was found, and what to do."""
    for name in folders:
        (tmp_path / name).mkdir()
    with pytest.raises(DataError, match=f"{tmp_path / 'data'}.*: expected .*{found}.*; ") as caught:
        find_images(tmp_path / "data")
    assert 1 == len(str(caught.value).splitlines())


@pytest.mark.parametrize("content", [b"", b"no image", None], ids=["empty", "text", "missing"])
def test_unreadable_images_are_named_in_one_line(tmp_path: Path, content: bytes | None) -> None:
    """A broken or missing file gives one clear error that names it."""
    path = tmp_path / "broken.png"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"broken\.png: expected a readable image, found .*; ") as caught:
        read_image(path)
    assert 1 == len(str(caught.value).splitlines())


def test_truncated_images_are_named(tmp_path: Path) -> None:
    """A file that ends too soon is found out when it is decoded."""
    whole = tmp_path / "whole.png"
    Image.effect_noise((64, 64), 50).save(whole)
    (tmp_path / "half.png").write_bytes(whole.read_bytes()[:1000])
    with pytest.raises(DataError, match=r"half\.png: expected a readable image"):
        read_image(tmp_path / "half.png")


def test_split_keeps_every_class_in_its_share() -> None:
    """A fifth of each class goes to validation, and every image to one part only."""
    images = numbered([0] * 50 + [1] * 10)
    train, validation = split_stratified(images, seed=3)
    assert (10, 2) == (validation.labels.count(0), validation.labels.count(1))
    assert set(images.paths) == set(train.paths) | set(validation.paths)
    assert len(images) == len(train) + len(validation)


def test_split_follows_its_seed() -> None:
    """One seed gives one split, another seed another."""
    images = numbered([0] * 50)
    assert split_stratified(images, seed=0) == split_stratified(images, seed=0)
    assert split_stratified(images, seed=0) != split_stratified(images, seed=1)


def test_spread_is_even_and_never_repeats() -> None:
    """Indices are evenly spaced; where fewer exist than asked for, all are taken."""
    assert [0, 3, 6] == list(spread(3, over=9))
    assert [0, 1] == list(spread(5, over=2))
