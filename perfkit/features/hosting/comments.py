"""One comment on a pull request of GitHub's, or a merge request of GitLab's, found again by a marker."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from perfkit.errors import PerfkitError

MARKER = "<!-- perfkit gate -->"
_LIMIT_S = 30.0
_PER_PAGE, _MOST_PAGES = 100, 20
# GitHub refuses a comment of 65,536 characters.
_MOST_CHARACTERS = 65_000
_CUT = "\n\n… cut here: the whole of it is in the run's artifact, perfkit-gate.md.\n"
_DENIED = (401, 403, 404)


class HostError(PerfkitError):
    """A service did not take a comment; ``status`` is that of its answer, None where there was none."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the comments of a change are: the address of their list, and the headers that a request needs.

    ``one`` is the address of a comment, with ``{id}`` in it, and ``method`` what changes one.
    """

    service: Literal["GitHub", "GitLab"]
    comments: str
    one: str
    method: Literal["PATCH", "PUT"]
    headers: Mapping[str, str]


def github_place(*, api: str, repository: str, number: int, token: str) -> Place:
    """Return where the comments of a pull request are."""
    issues = f"{api}/repos/{repository}/issues"
    return Place(
        service="GitHub",
        comments=f"{issues}/{number}/comments",
        one=f"{issues}/comments/{{id}}",
        method="PATCH",
        headers=github_headers(token),
    )


def github_headers(token: str) -> dict[str, str]:
    """Return the headers that a request to GitHub needs."""
    return {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"}


def gitlab_place(*, api: str, project: str, number: int, token: str) -> Place:
    """Return where the notes of a merge request are."""
    notes = f"{api}/projects/{urllib.parse.quote(project, safe='')}/merge_requests/{number}/notes"
    return Place(
        service="GitLab",
        comments=notes,
        one=f"{notes}/{{id}}",
        method="PUT",
        headers={"PRIVATE-TOKEN": token},
    )


def post(place: Place, text: str) -> Literal["updated", "made"]:
    """Change the comment that has the marker, or make it where there is none that may be changed.

    Raises:
        HostError: the service does not take it.
    """
    body = {"body": _shortened(f"{MARKER}\n{text}")}
    known = _marked(place)
    if known is not None:
        try:
            request(place.one.format(id=known), place.headers, method=place.method, body=body)
        except HostError as error:
            # It may be another's comment, who copied the marker with the text.
            if error.status not in _DENIED:
                raise
        else:
            return "updated"
    request(place.comments, place.headers, method="POST", body=body)
    return "made"


def open_pull_request(*, api: str, repository: str, head: str, token: str) -> int | None:
    """Return the number of the open pull request of a branch, "owner:branch"; None where there is none.

    Raises:
        HostError: the service does not answer that.
    """
    query = urllib.parse.urlencode({"state": "open", "head": head})
    found = request(f"{api}/repos/{repository}/pulls?{query}", github_headers(token))
    numbers = [one.get("number") for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return next((number for number in numbers if isinstance(number, int)), None)


def request(
    address: str, headers: Mapping[str, str], *, method: str = "GET", body: Mapping[str, str] | None = None
) -> object:
    """Return what a service answered, read as JSON.

    Raises:
        HostError: it refused, cannot be reached, or answered something else.
    """
    data = None if body is None else json.dumps(body).encode()
    try:
        host = urllib.parse.urlsplit(address).netloc
        sent = urllib.request.Request(  # noqa: S310 (the service's own address, as it tells its jobs)
            address, data=data, method=method, headers={"Content-Type": "application/json", **headers}
        )
    except ValueError as error:
        raise HostError(f"{address} is no address of a service: {error}") from error
    if not all(value.isascii() and value.isprintable() for value in headers.values()):
        # The library's own words would have the token in them.
        raise HostError(f"nothing was sent to {host}: the token holds a character that no header may have")
    try:
        with urllib.request.urlopen(sent, timeout=_LIMIT_S) as answer:  # noqa: S310 (likewise)
            found = answer.read() or b"null"
    except urllib.error.HTTPError as error:
        raise HostError(_refused(host, error), error.code) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise HostError(f"{host} cannot be reached: {reason}") from error
    try:
        return json.loads(found)
    except ValueError as error:
        raise HostError(f"{host} answered no JSON: {error}") from error


def _refused(host: str, error: urllib.error.HTTPError) -> str:
    try:
        said = json.loads(error.read()).get("message")
    except (ValueError, AttributeError, OSError):
        said = None
    return f"{host} answered {error.code} ({said or error.reason})"


def _marked(place: Place) -> int | None:
    """Return the id of the newest comment that begins with the marker."""
    newest = None
    for page in range(1, _MOST_PAGES + 1):
        found = request(f"{place.comments}?per_page={_PER_PAGE}&page={page}", place.headers)
        if not isinstance(found, list):
            break
        for one in found:
            if isinstance(one, dict) and str(one.get("body", "")).lstrip().startswith(MARKER):
                newest = max(newest or 0, int(one["id"]))
        if len(found) < _PER_PAGE:
            break
    return newest


def _shortened(text: str) -> str:
    """Cut a text at the end of a line, and close the fold that is open there."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    kept = text[:_MOST_CHARACTERS].rpartition("\n")[0]
    is_open = kept.count("<details>") > kept.count("</details>")
    return kept + ("\n\n</details>" if is_open else "") + _CUT
