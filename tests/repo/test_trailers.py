"""Acceptances in commit messages are read as git itself reads trailers."""

from __future__ import annotations

from pathlib import Path

import pytest
from repositories import Repository

from perfkit.errors import RepositoryError
from perfkit.model.comparisons import Acceptance
from perfkit.repo.git import author_name
from perfkit.repo.trailers import accepted_in, commits_in


def _accepted(repository: Repository, *trailers: str) -> tuple[list[tuple[str, str]], tuple[str, ...]]:
    base = repository.commit({"a.py": "1"}, "Begin")
    head = repository.commit({"a.py": "2"}, "Change a\n\nWhy it was done.\n\n" + "\n".join(trailers))
    acceptances, warnings = accepted_in(repository.root, base, head)
    return [(found.benchmark, found.reason) for found in acceptances], warnings


READ = [
    ("b/bench_a.py::test_a: wanted", "b/bench_a.py::test_a", "wanted"),
    ("b/bench_a.py::test_a -- wanted", "b/bench_a.py::test_a", "wanted"),
    ("bench_a.py::Class::test_a: wanted", "bench_a.py::Class::test_a", "wanted"),
    ("test_a: as bench_b.py::test_b: slow", "test_a", "as bench_b.py::test_b: slow"),
    ("bench_a.py::test_a: as a::b -- or so: [1]", "bench_a.py::test_a", "as a::b -- or so: [1]"),
    ("bench_a.py::test_a[n: 1 -- m::2]: wanted", "bench_a.py::test_a[n: 1 -- m::2]", "wanted"),
    ("bench_a.py::test_a[a]b[]: wanted [so]: yes", "bench_a.py::test_a[a]b[]", "wanted [so]: yes"),
    ("bench_a.py::test_a[200-5] -- wanted: yes", "bench_a.py::test_a[200-5]", "wanted: yes"),
    ("my benchmarks/bench_a.py::test_a: wanted", "my benchmarks/bench_a.py::test_a", "wanted"),
    ("bench_a.py::test_größe: ja", "bench_a.py::test_größe", "ja"),
    ("bench_a.py::test_a:\n  given on\n  two lines", "bench_a.py::test_a", "given on two lines"),
]
# These accept nothing, for want of a reason or of a separator.
REFUSED = [
    "",
    "bench_a.py::test_a",
    "bench_a.py::test_a:",
    "bench_a.py::test_a --",
    "bench_a.py::test_a[n: 1]",
    "bench_a.py::test_a[n::m: 1]",
    "bench_a.py::test_a - wanted",
    "bench_a.py: wanted",
    "we wanted this",
]


def test_the_separator_stands_right_behind_the_last_part(repository: Repository) -> None:
    trailers = [f"Perf-Accept: {value}" for value, _, _ in READ]

    assert ([(name, reason) for _, name, reason in READ], ()) == _accepted(repository, *trailers)


def test_a_trailer_without_a_reason_is_warned_of(repository: Repository) -> None:
    accepted, warnings = _accepted(repository, *(f"Perf-Accept: {value}" for value in REFUSED))

    assert [] == accepted
    assert len(REFUSED) == len(warnings)
    for value, warning in zip(REFUSED, warnings, strict=True):
        assert warning.startswith(f"commit {repository.git.head.commit.hexsha[:8]}: ")
        assert f'the trailer "Perf-Accept: {value}" accepts nothing; expected "Perf-Accept: BENCH' in warning


def test_a_placeholder_is_no_reason(repository: Repository) -> None:
    placeholders = ["REASON", "…", "reason", "why"]

    accepted, warnings = _accepted(
        repository, *(f"Perf-Accept: bench_a.py::test_a: {one}" for one in placeholders)
    )

    assert [] == accepted
    assert [True] * 4 == [
        warning.endswith(f" accepts nothing; write your own reason in place of {one}")
        for one, warning in zip(placeholders, warnings, strict=True)
    ]


def test_a_message_may_accept_several_things(repository: Repository) -> None:
    accepted, warnings = _accepted(
        repository,
        "Perf-Accept: bench_a.py::test_a: one",
        "Signed-off-by: A Tester <tester@example.org>",
        "perf-accept: bench_a.py::test_b: two",
        "Perf-Accept: bench_a.py::test_c",
    )

    assert [("bench_a.py::test_a", "one"), ("bench_a.py::test_b", "two")] == accepted
    assert 1 == len(warnings)


def test_only_trailers_count(repository: Repository) -> None:
    base = repository.commit({"a.py": "1"}, "Begin")
    head = repository.commit(
        {}, "Change a\n\nPerf-Accept: bench_a.py::test_a: no\n\nMore was done, in prose."
    )

    assert ((), ()) == accepted_in(repository.root, base, head)


def test_every_commit_of_the_range_counts_and_none_outside(repository: Repository) -> None:
    base = repository.commit({"a.py": "1"}, "Begin\n\nPerf-Accept: bench_a.py::test_base: too old")
    repository.git.git.checkout("--quiet", "-b", "side")
    side = repository.commit({"b.py": "1"}, "Side\n\nPerf-Accept: bench_a.py::test_side: from the side")
    repository.git.git.checkout("--quiet", "main")
    early = repository.commit({"a.py": "2"}, "Early\n\nPerf-Accept: bench_a.py::test_early: early")
    repository.git.git.merge("--quiet", "--no-edit", "side")
    head = repository.commit({"a.py": "3"}, "Plain")

    acceptances, _ = accepted_in(repository.root, base, head)

    assert {("bench_a.py::test_side", side), ("bench_a.py::test_early", early)} == {
        (found.benchmark, found.commit) for found in acceptances
    }
    assert (
        Acceptance(
            benchmark="bench_a.py::test_early", reason="early", commit=early, author="A Tester", verdict=None
        )
        in acceptances
    )
    merge = repository.git.commit("HEAD~1").hexsha
    assert {head, merge, early, side} == set(commits_in(repository.root, base, head))
    assert 4 == len(commits_in(repository.root, base, head))


def test_head_belongs_to_its_range_even_where_it_is_base(repository: Repository) -> None:
    head = repository.commit({"a.py": "1"}, "Begin\n\nPerf-Accept: bench_a.py::test_a: wanted")

    assert (head,) == commits_in(repository.root, head, head)
    assert ((), ()) == accepted_in(repository.root, head, head)


def test_the_user_settings_of_git_log_change_nothing(repository: Repository) -> None:
    with repository.git.config_writer() as config:
        config.set_value("log", "decorate", "full")
        config.set_value("i18n", "logOutputEncoding", "ISO-8859-1")
        config.set_value("color", "ui", "always")
        config.set_value("user", "name", "Ä Tester")

    assert ([("bench_a.py::test_a", "größer")], ()) == _accepted(
        repository, "Perf-Accept: bench_a.py::test_a: größer"
    )


def test_the_output_of_a_signature_check_is_no_acceptance(repository: Repository, tmp_path: Path) -> None:
    program = tmp_path / "verify"
    program.write_text("#!/bin/sh\necho not verified >&2\nexit 1\n")
    program.chmod(0o755)
    base = repository.commit({"a.py": "1"}, "Begin")
    plain = repository.commit({"a.py": "2"}, "Change\n\nPerf-Accept: bench_a.py::test_a: wanted")
    with repository.git.config_writer() as config:
        config.set_value("log", "showSignature", "true")
        config.set_value("gpg", "program", str(program))
    header, body = repository.git.git.cat_file("commit", plain).split("\n\n", 1)
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQ==\n -----END PGP SIGNATURE-----"
    raw = tmp_path / "commit"
    raw.write_text(f"{header}\n{signature}\n\n{body}\n")
    signed = repository.git.git.hash_object("-t", "commit", "-w", str(raw))

    (acceptance,), warnings = accepted_in(repository.root, base, signed)

    assert ("wanted", signed, ()) == (acceptance.reason, acceptance.commit, warnings)


@pytest.mark.parametrize("read", [accepted_in, commits_in])
def test_a_commit_that_git_lacks_is_one_line(repository: Repository, read: type) -> None:
    head = repository.commit({"a.py": "1"})

    with pytest.raises(RepositoryError, match="git fetch --unshallow") as caught:
        read(repository.root, "f" * 40, head)

    assert "\n" not in str(caught.value)


def test_the_author_is_the_one_that_git_would_name(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(variable, "/dev/null")
    assert "A Tester" == author_name(repository.root)
    repository.git.git.config("--unset", "user.name")

    assert author_name(repository.root) is None
