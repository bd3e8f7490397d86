"""``perfkit comment``: a gate's result, from its JSON, to where the people who read the change see it."""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perfkit.bounded import read_bytes
from perfkit.errors import UsageError
from perfkit.features.hosting.comments import (
    HostError,
    Place,
    github_place,
    gitlab_place,
    open_pull_request,
    post,
)
from perfkit.model.comparisons import GateReport

_GITHUB_API = "https://api.github.com"
_DENIED = (401, 403, 404)
_GITLAB_TOKEN = "PERFKIT_GITLAB_TOKEN"  # noqa: S105 (the name of a variable)


@dataclass(frozen=True, kw_only=True)
class ReadReport:
    """A gate's report, or the sentence that says why there is none."""

    report: GateReport | None
    problem: str = ""


def read_report(file: Path) -> ReadReport:
    """Return the report in a file that ``perfkit gate --json`` wrote, which may come from anyone.

    Raises:
        UsageError: it is larger than any result, or no regular file.
    """
    try:
        document = json.loads(read_bytes(file))
        return ReadReport(report=msgspec.convert(_with_limits(document), GateReport))
    except FileNotFoundError:
        return ReadReport(report=None, problem="the gate ended before it had a result")
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.EFBIG}:
            raise UsageError(
                f"--from {file}: {error.strerror}; name what `perfkit gate --json` wrote"
            ) from error
        return ReadReport(report=None, problem=f"{file.name} cannot be read: {error.strerror or error}")
    except (ValueError, RecursionError):
        # The message of the error would repeat what is in the file.
        return ReadReport(report=None, problem=f"{file.name} is no result of `perfkit gate --json`")


def _with_limits(document: Any) -> Any:  # noqa: ANN401 (whatever JSON holds)
    """Return a document whose intervals without a limit, which JSON has as null, have infinite ones."""
    if isinstance(document, list):
        return [_with_limits(one) for one in document]
    if not isinstance(document, dict):
        return document
    found = {key: _with_limits(value) for key, value in document.items()}
    if {"ratio", "low", "high", "confidence"} <= found.keys():
        found["low"] = 0.0 if found["low"] is None else found["low"]
        found["high"] = float("inf") if found["high"] is None else found["high"]
    return found


def comment_on_github(text: str, environment: Mapping[str, str]) -> str:
    """Comment on the pull request that a GitHub workflow runs for, and return what became of it.

    What GitHub does not allow is a sentence and no failure: the gate has its own exit code.

    Raises:
        UsageError: this is no workflow of GitHub's.
    """
    repository, event_file = environment.get("GITHUB_REPOSITORY"), environment.get("GITHUB_EVENT_PATH")
    if not repository or not event_file:
        raise UsageError(
            "GITHUB_REPOSITORY and GITHUB_EVENT_PATH are not set, so this is no workflow of GitHub's; read"
            " the comment with `perfkit gate --markdown FILE`"
        )
    token = environment.get("GITHUB_TOKEN", "").strip()
    if not token:
        return (
            "no comment: GITHUB_TOKEN is not set; add `env: {GITHUB_TOKEN: ${{ github.token }}}` to the step"
        )
    api = environment.get("GITHUB_API_URL") or _GITHUB_API
    try:
        number = _pull_request(_event(event_file), api=api, repository=repository, token=token)
        if number is None:
            return "no comment: this run belongs to no open pull request"
        return _posted(github_place(api=api, repository=repository, number=number, token=token), text, number)
    except HostError as error:
        advice = (
            "; the job needs `permissions: pull-requests: write`, which pull requests from forks only get in"
            " the workflow perfkit-comment.yml"
            if error.status in _DENIED
            else ""
        )
        return f"no comment: {error}{advice}"


def comment_on_gitlab(text: str, environment: Mapping[str, str]) -> str:
    """Comment on the merge request that a GitLab job runs for, and return what became of it.

    Raises:
        UsageError: this is no job of GitLab's.
    """
    api, project = environment.get("CI_API_V4_URL"), environment.get("CI_PROJECT_ID")
    if not api or not project:
        raise UsageError(
            "CI_API_V4_URL and CI_PROJECT_ID are not set, so this is no job of GitLab's; read the comment"
            " with `perfkit gate --markdown FILE`"
        )
    number = environment.get("CI_MERGE_REQUEST_IID", "")
    if not number.isdigit():
        return "no note: this job belongs to no merge request"
    token = environment.get(_GITLAB_TOKEN, "").strip()
    if not token:
        return f"no note: {_GITLAB_TOKEN} is not set; forks never have it, and the artifact has the result"
    try:
        return _posted(
            gitlab_place(api=api, project=project, number=int(number), token=token), text, int(number)
        )
    except HostError as error:
        advice = f"; {_GITLAB_TOKEN} needs the scope api" if error.status in _DENIED else ""
        return f"no note: {error}{advice}"


def run_address(environment: Mapping[str, str]) -> str | None:
    """Return the address of the run that has the gate's output, None where that is not known."""
    try:
        event = _event(environment["GITHUB_EVENT_PATH"])
        server, repository = environment["GITHUB_SERVER_URL"], environment["GITHUB_REPOSITORY"]
        run = _table(event, "workflow_run").get("id") or environment["GITHUB_RUN_ID"]
    except (KeyError, UsageError):
        return environment.get("CI_JOB_URL")
    return f"{server}/{repository}/actions/runs/{run}"


def _posted(place: Place, text: str, number: int) -> str:
    what = "the comment on pull request" if place.service == "GitHub" else "the note on merge request"
    return f"{post(place, text)} {what} {number}"


def _pull_request(event: Mapping[str, Any], *, api: str, repository: str, token: str) -> int | None:
    """Return the number of the pull request of an event; a run for a fork's names only its branch."""
    run = _table(event, "workflow_run")
    listed = run.get("pull_requests") or []
    for found in (_table(event, "pull_request"), *(one for one in listed if isinstance(one, dict))):
        if isinstance(found.get("number"), int):
            return int(found["number"])
    owner = _table(_table(run, "head_repository"), "owner").get("login")
    if not owner or not run.get("head_branch"):
        return None
    head = f"{owner}:{run['head_branch']}"
    return open_pull_request(api=api, repository=repository, head=head, token=token)


def _table(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = document.get(key)
    return found if isinstance(found, dict) else {}


def _event(file: str) -> Mapping[str, Any]:
    try:
        event = json.loads(read_bytes(Path(file)))
    except (OSError, ValueError) as error:
        raise UsageError(f"GITHUB_EVENT_PATH: {file} cannot be read as JSON: {error}") from error
    return event if isinstance(event, dict) else {}
