from __future__ import annotations

import pytest

from everstep.service.access import Access


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Basic secret"}, 401),
        ({"authorization": "Bearer "}, 401),
        ({"authorization": "Bearer wrong"}, 403),
        ({"authorization": "Bearer schl\u00fcssel"}, 403),
    ],
)
def test_refused(headers: dict[str, str], status: int) -> None:
    refused = Access("secret").check_if_configured(headers)
    assert refused is not None
    assert refused.status_code == status


def test_admitted() -> None:
    headers = {"authorization": "bearer secret"}
    assert Access("secret").check(headers) is None
    assert Access("secret").check_if_configured(headers) is None


def test_without_a_token_pushes_are_open_and_decisions_closed() -> None:
    assert Access(None).check_if_configured({}) is None
    refused = Access(None).check({"authorization": "Bearer x"})
    assert refused is not None
    assert refused.status_code == 403
