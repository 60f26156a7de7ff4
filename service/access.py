"""Who may write: one bearer token, compared in constant time; errors of the API as one line."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from starlette.responses import JSONResponse


def refusal(status: int, problem: str, mend: str) -> JSONResponse:
    """An error as the API sends it: what is wrong and what to do."""
    return JSONResponse({"error": f"{problem}; {mend}"}, status_code=status)


class Access:
    """`token` None means that none is configured: pushes are open (loopback), decisions are closed."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def check_if_configured(self, headers: Mapping[str, str]) -> JSONResponse | None:
        """The refusal of a request, or None where it may pass; open without a configured token."""
        return None if self._token is None else self._check(headers, self._token)

    def check(self, headers: Mapping[str, str]) -> JSONResponse | None:
        """The refusal of a request that decides something, or None where it may pass."""
        if self._token is None:
            return refusal(403, "no token is configured", "set service.listen.token_file to allow decisions over HTTP")
        return self._check(headers, self._token)

    def _check(self, headers: Mapping[str, str], token: str) -> JSONResponse | None:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not given:
            response = refusal(401, "no bearer token", "send 'Authorization: Bearer <token>'")
            response.headers["WWW-Authenticate"] = "Bearer"
            return response
        if not hmac.compare_digest(given.strip().encode(), token.encode()):
            return refusal(403, "the token does not match", "use the token of service.listen.token_file")
        return None
