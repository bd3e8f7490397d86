"""What other people wrote is data: nothing in it runs, is written elsewhere, or becomes more than text."""

from __future__ import annotations

import dataclasses
import json
import marshal
import os
import pickle
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hostile import (
    GATE_RUN,
    MARK,
    PAYLOADS,
    Output,
    markdown_faults,
    page_faults,
    run_command,
    terminal_faults,
    write_hostile_ledger,
)
from ledger_files import contents
from repositories import Repository, create_repository
from synthetic import build_row

from perfkit.commands.show import view_command
from perfkit.config import load_project
from perfkit.errors import PerfkitError, RepositoryError, UsageError
from perfkit.features.exchange import asv
from perfkit.features.exchange.command import ImportRequest, import_files
from perfkit.ledger.annotations import ACCEPTANCES
from perfkit.ledger.files import begin_hidden_folder, write_table
from perfkit.ledger.recording import header_line, recover, rows_line
from perfkit.ledger.remote import mirrored_url, put_pending
from perfkit.ledger.schema import SCHEMA, to_table
from perfkit.ledger.soundness import verify
from perfkit.ledger.store import Ledger
from perfkit.profiling.read.formats import read_memory, read_profile
from perfkit.profiling.read.names import CodeNames
from perfkit.repo.commits import changed_files, commits_between, open_repository, resolve
from perfkit.report.console import visible, visible_json
from perfkit.report.markdown_table import cell_code, code, escape, table_head, table_row

# Names that no file system takes, and commits whose digits are none.
_ID = "0199ffff-0000-7000-8000-00000000beef"
_SHA = "ab" * 20


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A project whose commits, tags, branch and ledger are hostile."""

    root: Path
    shas: tuple[str, ...]

    def run(
        self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str | Path
    ) -> Output:
        """Run a command in the project."""
        monkeypatch.chdir(self.root)
        return run_command(capfd, monkeypatch, *arguments)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Make the project once: no command that is tried here changes it."""
    root = tmp_path_factory.mktemp("stage") / "project"
    root.mkdir()
    repository = Repository(root, create_repository(root))
    (root / "pyproject.toml").write_text("[tool.perfkit]\n")
    shas = []
    for number, payload in enumerate(PAYLOADS.values()):
        text = payload.replace("\0", "")
        with repository.git.git.custom_environment(GIT_AUTHOR_NAME=re.sub(r"[<>\n]", "(", text)[:100]):
            message = f"{text}\n\nPerf-Accept: {text}: {text}"
            shas.append(repository.commit({"a.py": f"{number}\n"}, subject=message))
    repository.git.git.update_ref(f"refs/tags/<img>&{MARK};$(touch-{MARK})", shas[3])
    repository.git.git.symbolic_ref("HEAD", f"refs/heads/<b>{MARK}'\"|`x`")
    repository.git.git.reset("--soft", shas[-1])
    chosen = (shas[0], shas[-1])
    write_hostile_ledger(root / "benchmarks/ledger", chosen)
    return Stage(root=root, shas=chosen)


_COMMANDS: Mapping[str, Callable[[Stage, Path], tuple[str | Path, ...]]] = {
    "ledger list": lambda _, out: ("ledger", "list", "--json", out / "list.json"),
    "ledger show": lambda _, out: ("ledger", "show", GATE_RUN, "--json", out / "show.json"),
    "ledger check": lambda _, out: ("ledger", "check", "--json", out / "verify.json"),
    "ledger compact": lambda _, __: ("ledger", "compact", "--dry-run"),
    "history": lambda _, out: ("history", "show", "--json", out / "history.json"),
    "compare": lambda stage, out: ("compare", *stage.shas, "--json", out / "compare.json"),
    "log": lambda _, out: ("log", "--out", out / "log.md", "--json", out / "log.json"),
    "report": lambda _, out: ("report", "--out", out / "site"),
    "trends": lambda _, out: ("report", "--trends", out / "trends"),
    "gate": lambda _, out: (
        *("ledger", "judge", GATE_RUN),
        *("--markdown", out / "gate.md", "--json", out / "gate.json"),
    ),
    "export as asv": lambda _, out: ("ledger", "export", "--format", "asv", "--out", out / "asv"),
    "export": lambda _, out: ("ledger", "export", "--format", "pytest-benchmark", "--out", out / "files"),
    "accept": lambda _, __: ("accept", "x\x1b[2Jy", "--reason", "\x1b[2J"),
    "a ref": lambda _, __: ("compare", "x\x1b[2J", "HEAD"),
    "a profile": lambda _, __: ("show", "x\x1b[2J"),
    "a place": lambda _, __: ("ledger", "list", "--ledger", "x\x1b[2J\n"),
    "a file": lambda _, __: ("ledger", "import", "x\x1b[2J"),
}


@pytest.mark.parametrize("name", _COMMANDS)
def test_no_view_lets_a_text_be_more(
    name: str,
    stage: Stage,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = contents(stage.root)

    output = stage.run(capfd, monkeypatch, *_COMMANDS[name](stage, tmp_path))

    assert output.code in (0, 1, 2, 3)
    assert [] == terminal_faults(output.out) + terminal_faults(output.err)
    assert before == contents(stage.root)
    for file in filter(Path.is_file, tmp_path.rglob("*")):
        assert _faults_of(file) == []
    if name in ("report", "trends", "log", "gate", "export as asv"):
        assert any(MARK in file.read_text() for file in tmp_path.rglob("*") if file.is_file())


def _faults_of(file: Path) -> list[str]:
    text = file.read_text()
    if file.suffix == ".json":
        json.loads(text)
        return [found for found in terminal_faults(text) if "\\t" not in found]
    if file.suffix == ".md":
        return markdown_faults(text)
    if file.suffix == ".html":
        assert "Content-Security-Policy" in text
    return page_faults(text) + terminal_faults(text) if file.suffix in (".html", ".svg") else []


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_free_text_is_text_in_markdown(payload: str) -> None:
    row = table_row([escape(payload), cell_code(payload), "last"])
    texts = (
        "\n".join([*table_head(["a", "b", "c"]), row]),
        f"- {escape(payload)} `` x `` {code(payload)} {escape(payload)}",
        f"{escape(payload)}\n\n{code(payload)}",
    )

    for text in texts:
        assert [] == markdown_faults(text)
    assert 4 == len(re.findall(r"(?<!\\)(?:\\\\)*\|", row))


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_json_shows_the_same(payload: str) -> None:
    spelled = visible_json(json.dumps({payload: [payload]}, ensure_ascii=False))

    assert {payload: [payload]} == json.loads(spelled)
    assert [] == terminal_faults(spelled)
    assert [] == terminal_faults(visible(payload))


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_a_ref_is_a_commit_or_reported_in_a_line(payload: str, stage: Stage) -> None:
    with pytest.raises(RepositoryError, match=r"unknown commit|is not a commit"):
        resolve(open_repository(stage.root), payload)


@pytest.mark.parametrize("first", ["--output=file", "--no-index", "-h", "HEAD", "", _SHA + "\n", "../../x"])
def test_a_commit_of_a_ledger_is_no_option_of_git(first: str, stage: Stage, tmp_path: Path) -> None:
    before = contents(stage.root)

    assert changed_files(stage.root, first, stage.shas[0]) is None
    assert changed_files(stage.root, stage.shas[0], first) is None
    assert commits_between(stage.root, first, stage.shas[0]) is None
    assert before == contents(stage.root)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["../../../../up", "/up", "..", "a/b\\c", "x" * 3_000, "\0", "é" * 200])
def test_exports_write_inside_their_folder(text: str) -> None:
    row = build_row(1.0, sha=text)
    machines = [
        dataclasses.replace(row.machine, machine_id=one, facts={"machine": name})
        for one, name in ((text, "same"), (f"{text}2", "same"), (text + text, text))
    ]
    environment = dataclasses.replace(row.environment, facts={"environment": text})
    rows = [dataclasses.replace(row, machine=one, environment=environment) for one in machines]

    for name in asv.write(rows).files:
        parts = name.split("/")
        assert len(parts) <= 2
        assert not {"", ".", ".."} & set(parts)
        assert all(len(os.fsencode(part)) < 255 and "\0" not in part for part in parts)


@pytest.mark.parametrize(
    "text",
    [
        b'[{"run_id": 1}]',
        b"[1]",
        b"{}",
        b"null",
        b'"x"',
        b"[" * 50_000,
        b'[{"values": ["x"]}]',
        b'[{"policy": [["causes", "[[1]]"]]}]',
        b"\xff",
        b"1e999",
    ],
    ids=repr,
)
def test_a_staged_line_that_is_no_row_is_damaged(text: bytes, tmp_path: Path) -> None:
    row = build_row(1.0, run=_ID)
    staged = tmp_path / ".staged" / "20260102T030405Z-pytest-00000000beef.jsonl"
    begin_hidden_folder(staged.parent)
    line = sha256(text).hexdigest()[:16].encode() + b" " + text + b"\n"
    header = header_line(source="../../../up", run_id="../../../up", recorded_at=row.recorded_at)
    staged.write_bytes(header + rows_line([row]) + line + rows_line([row]))

    (found,) = recover(tmp_path)

    assert found.file == tmp_path / "20260102T030405Z-pytest-00000000beef.parquet"
    assert "1 damaged line" in found.problem
    assert 2 == len(Ledger(tmp_path).rows())


def test_a_ledger_cannot_name_the_store_it_is_put_into(tmp_path: Path) -> None:
    marked = {"url": "s3://theirs/ledger", "server": "http://evil.example"}
    (tmp_path / ".remote").mkdir()
    (tmp_path / ".remote" / "store.json").write_text(json.dumps(marked))
    (tmp_path / ".remote" / "stored").write_text("")

    assert mirrored_url(tmp_path) is None
    assert put_pending(tmp_path) is None


@pytest.mark.parametrize(
    "column", ["run_id", "recorded_at", "source", "commit", "benchmark", "values", "status"]
)
def test_a_row_without_its_parts_is_reported(column: str, tmp_path: Path) -> None:
    table = to_table([build_row(1.0, run=_ID)])
    empty = pa.nulls(1, SCHEMA.field(column).type)
    place = table.column_names.index(column)
    file = tmp_path / "20260102T030405Z-pytest-00000000beef.parquet"
    write_table(table.set_column(place, SCHEMA.field(column), empty), file)

    found, _ = verify(tmp_path)

    assert [file.name] == list({problem.file for problem in found.problems})
    for ask in (Ledger(tmp_path).rows, Ledger(tmp_path).runs):
        assert len(_refusal(ask).splitlines()) <= 1


class _Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.file,)


def _nested(opening: bytes, closing: bytes, depth: int) -> bytes:
    return opening * depth + closing * depth


def _profile(name: str) -> bytes:
    return marshal.dumps({("/a.py", 1, name): (1, 1, 0.1, 0.1, {})})


# What no reader may open, or must give up on before memory or time is gone.
_BOMBS: Mapping[str, Callable[[Path], bytes]] = {
    "pickle": lambda trap: pickle.dumps(_Trap(trap)),
    "pickle of protocol 0": lambda trap: pickle.dumps(_Trap(trap), protocol=0),
    "zip": lambda _: b"PK\x03\x04" + b"\0" * 100,
    "gzip of zeros": lambda _: _gzip(b"\0" * 3_000_000),
    "gzip of gzip": lambda _: _gzip(_gzip(b"{}")),
    "gzip of brackets": lambda _: _gzip(_nested(b"[", b"]", 1_000_000)),
    "nested lists": lambda _: _nested(b"[", b"]", 200_000),
    "nested objects": lambda _: _nested(b'{"a":', b"}", 200_000),
    "nested in a trace": lambda _: b'{"traceEvents":' + _nested(b"[", b"]", 200_000) + b"}",
    "marshal of a giant": lambda _: b"{0(\xff\xff\xff\x7f",
    "marshal of a long text": lambda _: b"{(\x01\x00\x00\x00s\xff\xff\xff\x7f",
    "marshal of code": lambda _: marshal.dumps(compile("open('x', 'w')", "x", "exec")),
    "marshal of references": lambda _: b"\xfb\xa9\x02r\x00\x00\x00\x00r\x00\x00\x00\x000",
    "marshal nested": lambda _: b"{" + b"(\x01\x00\x00\x00" * 5_000 + b"N" + b"N" + b"0",
    "no numbers": lambda _: b'{"name": "x", "values": [NaN, Infinity, -Infinity, 1e999]}',
    "giant number": lambda _: b'{"name": "x", "values": [' + b"9" * 10_000 + b"]}",
    "giant exponent": lambda _: b'{"name": "x", "values": [1e' + b"9" * 5_000 + b"]}",
    "surrogates": lambda _: b'{"name": "\\ud800", "values": [1.0], "commit": "' + _SHA.encode() + b'"}',
    "entities": lambda _: b'<!DOCTYPE x [<!ENTITY a "aaaa">]><x>&a;</x>',
    "nothing": lambda _: b"",
    "nul": lambda _: b"\0" * 1000,
}


def _gzip(data: bytes) -> bytes:
    packing = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    return packing.compress(data) + packing.flush()


def _read_import(file: Path) -> object:
    request = ImportRequest(places=(file,), ledger=file.parent / "ledger", start=file.parent, commit=_SHA)
    return import_files(request)


def _read_ledger(file: Path) -> object:
    (file.parent / "ledger").mkdir()
    file.rename(file.parent / "ledger/20260102T030405Z-pytest-00000000beef.parquet")
    ledger = Ledger(file.parent / "ledger")
    return ledger.rows(), ledger.runs()


def _read_config(file: Path) -> object:
    file.rename(file.parent / "pyproject.toml")
    return load_project(file.parent)


def _read_acceptance(file: Path) -> object:
    folder = file.parent / ACCEPTANCES.folder
    folder.mkdir()
    file.rename(folder / "a.json")
    return ACCEPTANCES.read(file.parent)


_READERS: Mapping[str, Callable[[Path], object]] = {
    "import": _read_import,
    "profile": lambda file: read_profile(file, CodeNames()),
    "memory snapshot": read_memory,
    "ledger": _read_ledger,
    "configuration": _read_config,
    "acceptance": _read_acceptance,
}


def _refusal(read: Callable[[], object]) -> str:
    """Return why something cannot be read, "" where it can."""
    try:
        read()
    except PerfkitError as error:
        return str(error)
    return ""


# These read in a process each time: they get what looks like one of their formats, and any other file is
# refused in tests/profiling/test_reading_bad_input.py.
_OWN_FORMATS = {
    "profile": ("pickle", "gzip", "marshal", "nested in"),
    "memory snapshot": ("pickle", "zip", "no"),
}


@pytest.mark.parametrize(
    ("reader", "bomb"),
    [(one, bomb) for one in _READERS for bomb in _BOMBS if bomb.startswith(_OWN_FORMATS.get(one, ("",)))],
)
def test_no_reader_runs_or_swallows_what_it_reads(reader: str, bomb: str, tmp_path: Path) -> None:
    trap = tmp_path / "trapped"
    file = tmp_path / "given.json"
    file.write_bytes(_BOMBS[bomb](trap))

    output = _refusal(lambda: _READERS[reader](file))

    assert len(output.splitlines()) <= 1
    assert [] == terminal_faults(output)
    assert not trap.exists()


def _series(text: str) -> Any:  # noqa: ANN401 (JSON)
    return {"name": text, "values": [1.0, 2.0], "unit": text, "commit": _SHA}


def _benchmark(text: str) -> Any:  # noqa: ANN401 (JSON)
    stats = {"min": 1, "max": 1, "mean": 1, "stddev": 0, "rounds": 1, "median": 1, "iterations": 1}
    bench = {"name": text, "fullname": text, "group": text, "params": {text: text}, "stats": stats}
    return {
        "machine_info": {"node": text, "cpu": {"brand_raw": text}, "system": text},
        "commit_info": {"id": _SHA, "branch": text},
        "benchmarks": [{**bench, "extra_info": {text: text}, "options": {}, "param": text}],
        "datetime": "2026-01-02T03:04:05",
        "version": text,
    }


def _asv_file(text: str) -> Any:  # noqa: ANN401 (JSON)
    return {
        "commit_hash": _SHA,
        "results": {text: [[1.0], [[text]], text]},
        "result_columns": ["result", "params", "version"],
        "params": {"machine": text, "cpu": text},
        "requirements": {text: text},
        "env_vars": {text: text},
        "python": text,
        "env_name": text,
        "date": 1,
        "version": 2,
    }


def _pyperf(text: str) -> Any:  # noqa: ANN401 (JSON)
    metadata = {"name": text, "unit": "second", "commit_id": _SHA, text: text, "hostname": text}
    return {"version": "1.0", "benchmarks": [{"runs": [{"values": [1.0]}]}], "metadata": metadata}


def _google(text: str) -> Any:  # noqa: ANN401 (JSON)
    context = {"host_name": text, "executable": text, "commit": _SHA, "date": text}
    return {"context": context, "benchmarks": [{"name": text, "real_time": 1.0, "label": text}]}


def _action(text: str) -> Any:  # noqa: ANN401 (JSON)
    bench = {"name": text, "value": 1.0, "unit": "ns/iter", "range": text, "extra": text}
    commit = {"id": _SHA, "message": text, "timestamp": "2026-01-02T03:04:05Z", "author": {"name": text}}
    return {
        "lastUpdate": 1,
        "entries": {text: [{"commit": commit, "date": 1, "tool": "cargo", "benches": [bench]}]},
    }


_FORMATS: Mapping[str, Callable[[str], Any]] = {
    "series": _series,
    "pytest-benchmark": _benchmark,
    "asv": _asv_file,
    "pyperf": _pyperf,
    "google-benchmark": _google,
    "github-action-benchmark": _action,
}


@pytest.mark.parametrize("name", _FORMATS)
def test_names_of_every_format_are_kept_and_reported_safely(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    for number, payload in enumerate(PAYLOADS.values()):
        (folder / f"{number}.json").write_text(json.dumps(_FORMATS[name](payload)))
    monkeypatch.chdir(tmp_path)

    output = run_command(capfd, monkeypatch, "ledger", "import", folder, "--ledger", "kept")

    assert [] == terminal_faults(output.out) + terminal_faults(output.err)
    assert 0 == output.code, output.err
    names = {row.outcome.benchmark.name for row in Ledger(tmp_path / "kept").rows()}
    assert all(any(payload in one for one in names) for payload in PAYLOADS.values())
    assert {"given", "kept"} == {file.name for file in tmp_path.iterdir()}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_configuration_is_refused_in_a_line(payload: str, tmp_path: Path) -> None:
    quoted = json.dumps(payload)
    quoted = re.sub("[\x7f]", "", quoted)
    for text in (f"[tool.perfkit]\n{quoted} = 1", f"[tool.perfkit]\nmargin = {quoted}", f"[tool.{quoted}"):
        (tmp_path / "pyproject.toml").write_text(text)
        with pytest.raises(PerfkitError) as refused:
            load_project(tmp_path)
        assert [] == terminal_faults(visible(str(refused.value)))


@pytest.mark.parametrize("name", ["</script><script>alert(1)</script>", "</ScRiPt >", "<!--<script>"])
def test_a_name_that_would_run_in_the_viewer_is_refused(name: str, tmp_path: Path) -> None:
    file = tmp_path / "a.prof"
    file.write_bytes(_profile(name))

    with pytest.raises(UsageError, match="would run as code"):
        view_command(file, server=True)


def test_the_viewer_listens_to_this_machine_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("--hostname=0.0.0.0").write_bytes(_profile("f"))

    command = view_command(Path("--hostname=0.0.0.0"), server=True)

    assert "127.0.0.1" == command[command.index("--hostname") + 1]
    assert command[-1] == str(tmp_path / "--hostname=0.0.0.0")
