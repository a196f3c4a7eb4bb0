"""The fixtures of pytest."""

import pytest

from . import Server


@pytest.fixture(scope="session")
def handfast_server():
    """A server for all tests of the session."""
    with Server() as server:
        yield server


@pytest.fixture(scope="session")
def handfast_uri(handfast_server):
    """The connection string of the server of the session."""
    return handfast_server.uri
