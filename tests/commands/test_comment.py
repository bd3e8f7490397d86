"""A gate's result reaches GitHub and GitLab once, and what they refuse is one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from comment_service import Service, comment_service
from synthetic import build_comparison, build_report

from perfkit.errors import UsageError
from perfkit.features.hosting.command import (
    MARKER,
    comment_on_github,
    comment_on_gitlab,
    read_report,
    run_address,
)


@pytest.fixture
def service() -> Iterator[Service]:
    """Serve comments until the test is over."""
    with comment_service() as served:
        yield served


def github(service: Service, folder: Path, event: dict[str, Any], **changed: str) -> dict[str, str]:
    """Return the variables that a step of GitHub's has."""
    (folder / "event.json").write_text(json.dumps(event))
    return {
        "GITHUB_API_URL": service.address,
        "GITHUB_REPOSITORY": "owner/project",
        "GITHUB_EVENT_PATH": str(folder / "event.json"),
        "GITHUB_SERVER_URL": "https://github.test",
        "GITHUB_RUN_ID": "5",
        "GITHUB_TOKEN": "secret",
        **changed,
    }


def gitlab(service: Service, **changed: str) -> dict[str, str]:
    """Return the variables that a job of GitLab's has."""
    variables = {
        "CI_API_V4_URL": service.address,
        "CI_PROJECT_ID": "42",
        "CI_MERGE_REQUEST_IID": "3",
        "PERFKIT_GITLAB_TOKEN": "secret",
    }
    return {**variables, **changed}


def test_a_comment_is_made_and_then_updated(service: Service, tmp_path: Path) -> None:
    service.comments = dict.fromkeys(range(1, 131), "other")
    step = github(service, tmp_path, {"pull_request": {"number": 7}})

    assert "made the comment on pull request 7" == comment_on_github("one", step)
    assert "updated the comment on pull request 7" == comment_on_github("two", step)

    assert f"{MARKER}\ntwo" == service.comments[131]
    assert 131 == len(service.comments)
    assert {"Bearer secret"} == service.tokens


def test_a_run_for_a_fork_finds_its_pull_request(service: Service, tmp_path: Path) -> None:
    run = {"id": 9, "head_branch": "topic", "head_repository": {"owner": {"login": "someone"}}}
    step = github(service, tmp_path, {"workflow_run": {**run, "pull_requests": []}})

    assert "made the comment on pull request 7" == comment_on_github("one", step)
    assert "https://github.test/owner/project/actions/runs/9" == run_address(step)
    gone = github(service, tmp_path, {"workflow_run": {**run, "head_branch": "gone"}})
    assert "no comment: this run belongs to no open pull request" == comment_on_github("one", gone)


def test_anothers_copy_of_the_comment_stays(service: Service, tmp_path: Path) -> None:
    service.comments, service.guarded = {1: f"{MARKER}\ncopied"}, {1}
    step = github(service, tmp_path, {"pull_request": {"number": 7}})

    assert "made the comment on pull request 7" == comment_on_github("one", step)
    assert {1: f"{MARKER}\ncopied", 2: f"{MARKER}\none"} == service.comments


@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_is_not_allowed_is_one_line(service: Service, tmp_path: Path, status: int) -> None:
    service.refuses = status
    step = github(service, tmp_path, {"pull_request": {"number": 7}})

    output = comment_on_github("one", step)

    assert f"answered {status} (Resource not accessible by integration)" in output
    assert "permissions: pull-requests: write" in output
    assert "\n" not in output
    assert "needs the scope api" in comment_on_gitlab("one", gitlab(service))


def test_without_a_token_or_a_service_it_is_reported(service: Service, tmp_path: Path) -> None:
    step = github(service, tmp_path, {"pull_request": {"number": 7}}, GITHUB_TOKEN="")

    assert "GITHUB_TOKEN is not set" in comment_on_github("one", step)
    assert "PERFKIT_GITLAB_TOKEN is not set" in comment_on_gitlab(
        "one", gitlab(service, PERFKIT_GITLAB_TOKEN="")
    )
    assert "cannot be reached" in comment_on_gitlab(
        "one", gitlab(service, CI_API_V4_URL="http://127.0.0.1:1")
    )
    with pytest.raises(UsageError, match="no workflow of GitHub's"):
        comment_on_github("one", {})
    with pytest.raises(UsageError, match="no job of GitLab's"):
        comment_on_gitlab("one", {})


def test_a_note_is_made_and_then_updated(service: Service) -> None:
    assert "made the note on merge request 3" == comment_on_gitlab("one", gitlab(service))
    assert "updated the note on merge request 3" == comment_on_gitlab("two", gitlab(service))
    assert "PUT /projects/42/merge_requests/3/notes/1" == service.asked[-1]
    assert {1: f"{MARKER}\ntwo"} == service.comments


@pytest.mark.parametrize("end", ["\n", " \r\n"])
def test_a_line_end_behind_a_token_is_left_out(service: Service, tmp_path: Path, end: str) -> None:
    event = {"pull_request": {"number": 7}}
    tokens = dict.fromkeys(("GITHUB_TOKEN", "PERFKIT_GITLAB_TOKEN"), f"secret{end}")

    comment_on_gitlab("text", gitlab(service) | tokens)
    comment_on_github("text", github(service, tmp_path, event) | tokens)

    assert {"secret", "Bearer secret"} == service.tokens


@pytest.mark.parametrize("token", ["glpat-SECRET\nrest", "glpat-SECRET\u20ac"])
def test_a_token_that_no_header_may_have_is_not_printed(service: Service, tmp_path: Path, token: str) -> None:
    event = {"pull_request": {"number": 7}}
    tokens = dict.fromkeys(("GITHUB_TOKEN", "PERFKIT_GITLAB_TOKEN"), token)

    expected = (
        comment_on_gitlab("text", gitlab(service) | tokens),
        comment_on_github("text", github(service, tmp_path, event) | tokens),
    )

    assert [True] * 2 == [
        one.endswith("the token holds a character that no header may have") for one in expected
    ]
    assert "SECRET" not in "".join(expected)
    assert {} == service.comments


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://a..b", "a..b cannot be reached"),
        ("nowhere", "is no address of a service"),
        ("http://[", "no address"),
    ],
)
def test_an_address_that_is_none_is_reported_as_such(
    service: Service, tmp_path: Path, address: str, expected: str
) -> None:
    event = {"pull_request": {"number": 7}}

    output = (
        comment_on_gitlab("text", gitlab(service) | {"CI_API_V4_URL": address}),
        comment_on_github("text", github(service, tmp_path, event) | {"GITHUB_API_URL": address}),
    )

    assert [True] * 2 == [expected in one for one in output]


def test_a_long_comment_is_cut_where_a_line_ends(service: Service, tmp_path: Path) -> None:
    step = github(service, tmp_path, {"pull_request": {"number": 7}})

    comment_on_github("<details>\n" + "a line\n" * 20_000 + "</details>", step)

    kept = service.comments[1]
    assert len(kept) < 65_536
    assert kept.count("<details>") == kept.count("</details>")
    assert "cut here" in kept


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    report = build_report(build_comparison("test_a", "INCONCLUSIVE", 1.02, 0.9, float("inf")))
    file = tmp_path / "gate.json"
    file.write_bytes(msgspec.json.encode(report))

    assert report == read_report(file).report


@pytest.mark.parametrize("text", ["", "[1, 2]", '{"run_id": 3}', "[" * 100_000])
def test_anything_else_is_no_result(tmp_path: Path, text: str) -> None:
    file = tmp_path / "gate.json"
    file.write_text(text)

    assert "gate.json is no result of `perfkit gate --json`" == read_report(file).problem
    assert "the gate ended before it had a result" == read_report(tmp_path / "none.json").problem
