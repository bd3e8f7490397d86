"""Texts and files that try to be more than data, and checks of what shows or reads them."""

from __future__ import annotations

import gc
import html.parser
import re
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from synthetic import ENVIRONMENT, MACHINE, build_row

from perfkit.cli import main
from perfkit.ledger.files import write_table
from perfkit.ledger.schema import to_table
from perfkit.model import Metric, Row
from perfkit.model.comparisons import Policy
from perfkit.model.policies import GatePolicy
from perfkit.model.results import SIDES

MARK = "hostile"
# Each holds the mark, so that a view that shows none of them is not taken for a safe one.
PAYLOADS: Mapping[str, str] = {
    "script": f"{MARK}<script>alert(1)</script>",
    "image": f'{MARK}"><img src=x onerror=alert(1)>',
    "image of markdown": f"{MARK}![x](http://evil.example/x.png)",
    "link of markdown": f"{MARK}[x](javascript:alert(1))",
    "reference of markdown": f"{MARK}[x]\n\n[x]: javascript:alert(1)",
    "autolink": f"{MARK}<javascript:alert(1)>",
    "end of code": f"{MARK}`</code>``<img src=x>```<b>x</b>",
    "only backticks": "`" * 9 + MARK,
    "emphasis": f"{MARK} **bold** __strong__ ~~gone~~",
    "cell": f"{MARK}|x|y\\|z\\",
    "heading": f"{MARK}\n# Heading\n---\n- item",
    "comment": f"{MARK}<!-- perfkit:log end -->-->",
    "entity": f"{MARK}&lt;b&gt;&#60;b&#62;",
    "escape sequence": f"{MARK}\x1b[2J\x1b]0;title\x07\x1b]8;;http://evil.example\x07x",
    "control of eight bits": f"{MARK}\x9b2J\x9d0;t\x9c",
    "overwriting": f"{MARK}\rok\x08\x08\x7f\x0b\x0c",
    "reversed": f"{MARK}\u202egnp\u2066x\u2028y\u200f",
    "markup of rich": f"{MARK}[bold red]x[/bold red][link=http://evil.example]y[/link]",
    "template": f"{MARK}{{{{ 7 * 7 }}}}{{% raw %}}${{7*7}}",
    "format": f"{MARK}%s%n{{0}}{{__class__}}",
    "mention": f"{MARK} @octocat #1",
    "traversal": f"../../../../{MARK}",
    "absolute": f"/{MARK}",
    "option": f"--upload-pack={MARK}",
    "output": f"--output={MARK}",
    "nul": f"{MARK}\x00x",
    "quotes": f"{MARK}'\"; DROP TABLE ledger; --",
    "shell": f"{MARK}$(touch {MARK})`touch {MARK}`;touch {MARK}",
    "glob": f"{MARK}[*?]/**",
    "long": f"{MARK}{'x' * 3_000}",
    "combining": f"{MARK}{chr(0x301) * 300}",
    "joiners": f"{MARK}\u200b\u200d\ufeff\U000e0041",
}

# What steers a terminal or turns the order of a line; an end of line is a view's own.
_STEERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_ACTIVE = frozenset({"script", "img", "iframe", "object", "embed", "form", "input", "link", "base", "svg"})


@dataclass(frozen=True, kw_only=True)
class Output:
    """The output of a command, and its exit code."""

    code: int
    out: str
    err: str


def run_command(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str | Path
) -> Output:
    """Run a command of perfkit in this process."""
    monkeypatch.setattr(sys, "argv", ["perfkit", *map(str, arguments)])
    threshold, of_a_person = gc.get_threshold(), signal.getsignal(signal.SIGINT)
    capfd.readouterr()
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        # A command's own process ends here: it leaves Ctrl-C to the kernel, which would end later tests.
        signal.signal(signal.SIGINT, of_a_person)
        gc.set_threshold(*threshold)
    out, err = capfd.readouterr()
    return Output(code=int(ended.value.code or 0), out=out, err=err)


def terminal_faults(text: str) -> list[str]:
    """Return what in a text would steer a terminal."""
    return [repr(text[max(found.start() - 30, 0) : found.end() + 10]) for found in _STEERS.finditer(text)]


class _Tags(html.parser.HTMLParser):
    """Collects the tags of a page with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def tags_of(page: str) -> list[tuple[str, dict[str, str | None]]]:
    """Return the tags that a browser would find in a page."""
    reader = _Tags()
    reader.feed(page)
    reader.close()
    return reader.tags


def page_faults(page: str) -> list[str]:
    """Return what in a page could run something, or fetch something from elsewhere."""
    faults = []
    for tag, attributes in tags_of(page):
        faults += [f"{tag} {name}" for name in attributes if name.startswith("on")]
        for name in ("src", "href", "xlink:href", "action", "data"):
            place = (attributes.get(name) or "").strip().lower()
            if place.startswith(("javascript:", "data:", "vbscript:", "//")) or "evil.example" in place:
                faults.append(f"{tag} {name}={place}")
        if tag in ("b", "img") and attributes.get("src") in ("x", None):
            faults.append(tag)
        if "alert(1)" in (attributes.get("style") or ""):
            faults.append(f"{tag} style")
    return faults


def markdown_faults(text: str) -> list[str]:
    """Return what in a markdown text a forge would show as something else than text, code or a table."""
    page = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text)
    tags = tags_of(page)
    faults = [tag for tag, _ in tags if tag in _ACTIVE | {"b", "s", "em"}]
    faults += [f"a {attributes}" for tag, attributes in tags if tag == "a" and "evil" in str(attributes)]
    faults += [f"a {attributes}" for tag, attributes in tags if tag == "a" and "alert" in str(attributes)]
    faults += re.findall(r"<h1>Heading</h1>|<strong>(?:bold|strong)</strong>", page)
    # A forge sends a message to whom a text mentions outside of code.
    prose = re.sub(r"<code>.*?</code>", "", page, flags=re.DOTALL)
    faults += re.findall(r"(?<![\w/])@octocat", prose)
    return faults + terminal_faults(text)


def hostile_rows(payload: str, number: int, shas: Sequence[str]) -> Iterator[Row]:
    """Yield rows of runs of several kinds, each text of which is hostile, at commits that git knows."""
    outcome = build_row(1.0).outcome
    benchmark = replace(
        outcome.benchmark, name=payload, version=payload, params={payload: payload}, group=payload
    )
    facts = dict.fromkeys(("cpu", "gpus", "node", "machine", "system", "ram_gib", payload), payload)
    machine = replace(MACHINE, machine_id=payload, facts=facts)
    environment = replace(
        ENVIRONMENT, env_id=payload, facts={"python": payload, "torch": payload, payload: payload}
    )
    for place, sha in enumerate(shas):
        run = f"0199{number:04x}-{place:04x}-7000-8000-{number:06x}{place:06x}"
        row = build_row(0.1 + place, 0.11 + place, run=run, minute=number * 100 + place, sha=sha)
        commit = replace(row.commit, subject=payload, branch=payload)
        row = replace(row, commit=commit, outcome=replace(row.outcome, benchmark=benchmark))
        yield replace(row, machine=machine, environment=environment)
        yield replace(row, outcome=replace(row.outcome, values=(), status="error", message=payload))
        metric = Metric(name=payload, unit=payload, exact=True)
        yield replace(row, outcome=replace(row.outcome, metric=metric))


GATE_RUN = "0198ffff-0000-7000-8000-00000000abcd"


def gate_rows(base: str, head: str) -> Iterator[Row]:
    """Yield the rows of a gate whose benchmarks have hostile names and messages."""
    policy = GatePolicy(
        rules=Policy(alpha=0.01, family=len(PAYLOADS), looks=(3,)),
        margin=0.02,
        gating=True,
        verdict="REGRESSED",
        base=base,
        budget_s=10.0,
        mode="forked",
        as_is=False,
    )
    facts = dict.fromkeys(("cpu", "gpus", "node"), "".join(PAYLOADS.values()))
    machine = replace(MACHINE, facts=facts)
    for payload in PAYLOADS.values():
        for launch in range(3):
            for side, sha, values in zip(
                SIDES, (base, head), ((1.0, 1.1, 1.0), (2.0, 2.1, 2.2)), strict=True
            ):
                row = build_row(
                    *values, name=payload, sha=sha, run=GATE_RUN, minute=9_000, subject=payload,
                    launch=launch, side=side, source="gate", policy=policy, machine=machine,
                )  # fmt: skip
                yield row
        failed = build_row(
            name=f"failed {payload}", sha=head, run=GATE_RUN, minute=9_000, subject=payload, side="head",
            source="gate", policy=policy, status="error", message=payload, machine=machine,
        )  # fmt: skip
        yield failed


def write_hostile_ledger(ledger: Path, shas: Sequence[str]) -> None:
    """Write a ledger in which every text is hostile, and the gate of its first and last commit."""
    for number, payload in enumerate(PAYLOADS.values()):
        rows = list(hostile_rows(payload, number, shas))
        for run in {row.run_id for row in rows}:
            of_run = [row for row in rows if row.run_id == run]
            write_table(to_table(of_run), ledger / f"20260102T{number:04}00Z-pytest-{run[-12:]}.parquet")
    gate = list(gate_rows(shas[0], shas[-1]))
    write_table(to_table(gate), ledger / f"20260109T000000Z-gate-{GATE_RUN[-12:]}.parquet")
