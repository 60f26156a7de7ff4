"""The demo's side of the two HTTP APIs; every call is bounded."""

from __future__ import annotations

from typing import Any

import httpx

from everstep.core.errors import EverstepError

TIMEOUT_S = 5.0
STOP_TIMEOUT_S = 15.0


class Peer:
    """One server of the demo, service or agent, with its token."""

    def __init__(self, name: str, url: str, token: str) -> None:
        self.name = name
        self._client = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT_S, trust_env=False
        )

    def close(self) -> None:
        self._client.close()

    def get(self, path: str) -> Any:
        """The JSON answer. Raises `EverstepError` when there is none or it is a refusal."""
        return self._ask("GET", path, None, TIMEOUT_S)

    def post(self, path: str, body: dict[str, Any], *, timeout_s: float = TIMEOUT_S) -> Any:
        return self._ask("POST", path, body, timeout_s)

    def healthy(self) -> bool:
        try:
            return self._client.get("/healthz", timeout=1.0).is_success
        except httpx.HTTPError:
            return False

    def _ask(self, method: str, path: str, body: dict[str, Any] | None, timeout_s: float) -> Any:
        try:
            answer = self._client.request(method, path, json=body, timeout=timeout_s)
        except httpx.HTTPError as error:
            raise EverstepError(
                f"{self.name} does not answer {method} {path} ({type(error).__name__})",
                mend="run again with --keep and read its log",
            ) from error
        if not answer.is_success:
            raise EverstepError(
                f"{self.name} refused {method} {path} with {answer.status_code}: {answer.text.strip()[:200]}",
                mend="run again with --keep and read its log",
            )
        return answer.json()


def living(workers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of an agent's workers that have not ended."""
    return [worker for worker in workers if worker["state"] in {"starting", "running", "stopped"}]
