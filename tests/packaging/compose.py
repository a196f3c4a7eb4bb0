"""The services of compose.yaml as processes of this machine: compose.py --handfast PROGRAM.

Each service of the Dockerfile runs with its command and its environment. In the place of names of services and published ports are loopback addresses, and in
the place of the image of MongoDB is another server without transactions.
"""

import contextlib
import hashlib
import json
import re
import sys
import urllib.error
import urllib.request

import pymongo
import yaml

from common import PATIENCE_SECONDS, ROOT, environment, flag, free_port, get, running, scratch, succeeds, until, wait_until_ready

sys.path.insert(0, str(ROOT / "tests/harness"))
from servers import SecantusDB  # noqa: E402

COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
TOKEN = "7d9f"
KEYS = {"build", "command", "depends_on", "environment", "healthcheck", "image", "ports", "restart", "secrets", "stop_grace_period", "volumes"}


def check_references():
    """Services, volumes and secrets that the file names are in it, and a service that others wait for has a health check."""
    for name, service in SERVICES.items():
        assert set(service) <= KEYS, f"{name}: {set(service) - KEYS}"
        for needed, wanted in service.get("depends_on", {}).items():
            assert wanted == {"condition": "service_healthy"} and "test" in SERVICES[needed]["healthcheck"], (name, needed)
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in COMPOSE["volumes"], (name, volume)
        for secret in service.get("secrets", []):
            assert secret in COMPOSE["secrets"], (name, secret)
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name}: other machines reach {port}"
        assert "build" in service or re.search(r":\d+(\.\d+)?$", service["image"]), f"{name}: the version of its image is not fixed"


def command_of(name, program, places):
    """Returns the command and the environment of a service that the Dockerfile builds, with other addresses."""
    service = SERVICES[name]
    dockerfile = dict(re.findall(r"^ENV (\w+)=(.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))

    def placed(text):
        for place, address in places.items():
            text = text.replace(place, address)
        return text

    variables = {key: placed(value) for key, value in {**dockerfile, **service["environment"]}.items()}
    return [program, *map(placed, service["command"])], environment(**variables)


def count(url, **headers):
    """Counts a view, and returns the status and the answer."""
    request = urllib.request.Request(url, method="POST", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, None


def check_services(program, directory, running_services):
    """A transaction through `handfast` is in `store`; a view is counted by `counters`, with a token."""
    store = running_services.enter_context(SecantusDB())
    redis, api, counting, driver = (free_port() for _ in range(4))
    tokens = directory / "tokens.txt"
    tokens.write_text(hashlib.sha256(TOKEN.encode()).hexdigest() + "\n")
    places = {
        "store:27017": f"127.0.0.1:{store.port}", "redis:6379": f"127.0.0.1:{redis}", "/run/secrets/tokens": str(tokens),
        "0.0.0.0:8080": f"127.0.0.1:{api}", "0.0.0.0:8081": f"127.0.0.1:{counting}", "0.0.0.0:27017": f"127.0.0.1:{driver}",
    }
    redis_command = [*SERVICES["redis"]["command"], "--port", redis, "--bind", "127.0.0.1", "--dir", directory]
    running_services.enter_context(running(redis_command, directory / "redis"))
    kind, *healthy = SERVICES["redis"]["healthcheck"]["test"]
    assert kind == "CMD", healthy
    until("Redis is healthy", lambda: succeeds(*healthy[:1], "-p", redis, *healthy[1:]))
    for name in ("handfast", "counters"):
        command, variables = command_of(name, program, places)
        log = directory / name
        process = running_services.enter_context(running(command, log, env=variables, cwd=directory))
        wait_until_ready(process, log)

    with pymongo.MongoClient(f"mongodb://127.0.0.1:{driver}") as client, client.start_session() as session:
        session.with_transaction(lambda s: client.shop.orders.insert_one({"_id": 1}, session=s))
    with pymongo.MongoClient(store.uri) as client:
        assert client.shop.orders.count_documents({"_id": 1}) == 1
    assert get(f"http://127.0.0.1:{api}/healthz") == ""
    assert "handfast_server_transactions_total" in get(f"http://127.0.0.1:{api}/metrics")

    views = f"http://127.0.0.1:{counting}/v1/ads/4711"
    assert count(f"{views}/views")[0] == 401
    status, counted = count(f"{views}/views", Authorization=f"Bearer {TOKEN}")
    assert status == 200 and counted["total"] == 1, (status, counted)
    assert json.loads(get(views))["total"] == 1


with scratch() as directory, contextlib.ExitStack() as running_services:
    check_references()
    check_services(flag("handfast"), directory, running_services)
