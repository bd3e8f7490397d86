"""Files of any machine are recognised as own or library code, and named for people."""

from __future__ import annotations

import pytest

from perfkit.profiling.read.names import CodeNames

WINDOWS = r"C:\Users\me\AppData\Local\Programs\Python\Python311\Lib"
FRAMEWORK = "/Library/Frameworks/Python.framework/Versions/3.11/lib/python3.11"


@pytest.mark.parametrize(
    ("file", "kind", "shown"),
    [
        ("/home/me/project/src/train.py", "own", "project/src/train.py"),
        ("/train.py", "own", "train.py"),
        ("train.py", "own", "train.py"),
        ("/usr/lib/python3.9/threading.py", "library", "threading.py"),
        ("/usr/lib/python3/dist-packages/torch/optim/adam.py", "library", "torch/optim/adam.py"),
        ("/opt/conda/lib/python3.10/multiprocessing/pool.py", "library", "multiprocessing/pool.py"),
        ("/opt/pypy/lib/pypy3.10/threading.py", "library", "threading.py"),
        (f"{FRAMEWORK}/json/decoder.py", "library", "json/decoder.py"),
        ("/Users/me/venv/lib/python3.11/site-packages/rich/text.py", "library", "rich/text.py"),
        ("/Users/me/code/lib/train.py", "own", "code/lib/train.py"),
        ("/home/me/python3/project/train.py", "own", "python3/project/train.py"),
        ("/home/me/mypython3.9/train.py", "own", "me/mypython3.9/train.py"),
        (rf"{WINDOWS}\threading.py", "library", "threading.py"),
        (rf"{WINDOWS}\multiprocessing\pool.py", "library", "multiprocessing/pool.py"),
        (rf"{WINDOWS}\site-packages\torch\optim\adam.py", "library", "torch/optim/adam.py"),
        (r"D:\work\project\lib\train.py", "own", "project/lib/train.py"),
        (r"D:\train.py", "own", "train.py"),
        ("python3.11/threading.py", "library", "threading.py"),
        ("torch/optim/adam.py", "library", "torch/optim/adam.py"),
        ("mine/train.py", "own", "mine/train.py"),
        (r"mine\train.py", "own", "mine/train.py"),
        ("<frozen importlib._bootstrap>", "library", "<frozen importlib._bootstrap>"),
        ("<string>", "library", "<string>"),
        ("<ipython-input-3-0a1b>", "own", "<ipython-input-3-0a1b>"),
    ],
)
def test_a_file_is_named_from_its_library_or_project_on(file: str, kind: str, shown: str) -> None:
    code = CodeNames(present=frozenset({"mine"}))
    assert (kind, shown) == (code.kind(file), code.shown(file))


@pytest.mark.parametrize(
    ("file", "kind", "shown"),
    [
        ("/home/me/base/src/loss.py", "own", "src/loss.py"),
        (
            "/home/me/base/.venv/lib/python3.11/site-packages/torch/nn/module.py",
            "library",
            "torch/nn/module.py",
        ),
        ("/home/me/base2/src/loss.py", "library", "base2/src/loss.py"),
        ("/usr/lib/python3.11/threading.py", "library", "threading.py"),
        ("<ipython-input-3-0a1b>", "own", "<ipython-input-3-0a1b>"),
        ("loss.py", "library", "loss.py"),
    ],
)
def test_a_root_states_what_is_own_and_whence_it_is_named(file: str, kind: str, shown: str) -> None:
    code = CodeNames(root="/home/me/base")
    assert (kind, shown) == (code.kind(file), code.shown(file))


@pytest.mark.parametrize(
    ("own", "file", "kind"),
    [
        ("torch", "/usr/lib/python3.9/site-packages/torch/optim/adam.py", "own"),
        ("torch.optim", "/usr/lib/python3.9/site-packages/torch/optim/adam.py", "own"),
        ("torch.nn", "/usr/lib/python3.9/site-packages/torch/optim/adam.py", "library"),
        ("torch.optim.adam", "torch/optim/adam.py", "own"),
        ("src/lib", "/content/src/lib/trainers.py", "own"),
        ("trainers", "/content/src/lib/trainers.py", "own"),
        ("trainers.py", "/content/src/lib/trainers.py", "own"),
        ("train", "/content/src/lib/trainers.py", "library"),
        ("lib", r"C:\src\lib\trainers.py", "own"),
        ("", "/content/src/lib/trainers.py", "library"),
        ("src", "<ipython-input-3-0a1b>", "library"),
    ],
)
def test_the_reader_states_what_is_own(own: str, file: str, kind: str) -> None:
    assert kind == CodeNames(own=(own,)).kind(file)
