"""A request's URL, its origin and the API families in its path (specification 2.4, contract section 3)."""

import re

FAMILIES = ("/rest", "/storage", "/auth", "/realtime")
"""Bit n of a family set stands for the n-th of these texts."""

_ORIGIN = re.compile(r"[^:/?#]+://[^/?#]*")
_LONGEST_ORIGIN = 512  # characters; what follows counts as path, so that no hostile host becomes a key


def families_in(path: str) -> int:
    """The set of families whose text is in a path, as bits: not exclusive."""
    return ("/rest" in path) | ("/storage" in path) << 1 | ("/auth" in path) << 2 | ("/realtime" in path) << 3


def origin_of(url: str) -> str:
    """A URL's scheme and authority: all before the first `/`, `?` or `#` behind `scheme://`; '' without a scheme."""
    match = _ORIGIN.match(url)
    return match.group() if match is not None and match.end() <= _LONGEST_ORIGIN else ""


def path_of(url: str) -> str:
    """A URL's path: what follows its scheme and authority, up to the query or the fragment."""
    match = _ORIGIN.match(url)
    path = url[match.end() :] if match is not None else url
    return path.partition("?")[0].partition("#")[0]


def build_url(protocol: str | None, host: str | None, path: str | None, project: str) -> tuple[str, str]:
    """The URL of a request that came without one, and its origin (contract section 3).

    Scheme, host and path as sent; without a host the project reference stands for scheme and host. The scheme is
    the protocol up to its first `:` or `/`, `https` where there is none.
    """
    if host is None:
        return project + (path or ""), project if len(project) <= _LONGEST_ORIGIN else ""
    scheme = (protocol or "https").partition(":")[0].partition("/")[0].lower()
    url = f"{scheme}://{host}{path or ''}"
    return url, origin_of(url)
