"""Makes a client from the document of the HTTP API, and drives it, also with requests at random: api.py --handfast PROGRAM.

A warning of the generator is a failure, and so is a status or a field that the document does not have.
"""

import importlib
import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx

# Nothing formats the code: nobody reads it.
CONFIG = {"post_hooks": []}
SEED = 7
ROUNDS = 60

handfast = sys.argv[sys.argv.index("--handfast") + 1]


def serve(directory):
    """Starts the server, and returns it with the URL of its API."""
    args = [handfast, "serve", "--data", str(directory / "data"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    server = subprocess.Popen(args, stdout=subprocess.PIPE, text=True)
    line = server.stdout.readline()
    url = re.search(r"http://[0-9.:]+", line)
    assert url and server.stdout.readline().strip() == "ready", line
    return server, url.group()


def generate(url, directory):
    config = directory / "config.json"
    config.write_text(json.dumps(CONFIG))
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--url", f"{url}/openapi.json", "--meta", "none"]
    command += ["--config", str(config), "--output-path", str(directory / "api_client"), "--fail-on-warning"]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    sys.path.insert(0, str(directory))


def operation(tag, name):
    return importlib.import_module(f"api_client.api.{tag}.{name}").sync


def drive(url):
    """Does with the client what a program would do."""
    from api_client import Client
    from api_client import models

    client = Client(base_url=url, raise_on_unexpected_status=True)
    enqueue, claim = operation("queues", "enqueue_job"), operation("queues", "claim_jobs")
    complete = operation("queues", "complete_job")
    job = models.NewJob.from_dict({"type": "mail", "details": {"to": "ann"}})
    added = [enqueue("db", "mails", client=client, body=job, idempotency_key="k1") for _ in range(2)]
    assert added[0].inserted is True and added[0].to_dict() == added[1].to_dict(), added
    wanted = models.Claim(worker="w", types=["mail"], count=5, wait_millis=1000)
    [claimed] = claim("db", "mails", client=client, body=wanted).jobs
    assert claimed.details.to_dict() == {"to": "ann"}, claimed
    done = models.Completion.from_dict({"job": claimed.to_dict(), "result": {"sent": True}})
    assert complete("db", "mails", client=client, body=done).claim_state == "held"
    changes = [{"account": "cash", "value": -5, "asset": "EUR"}, {"account": "ann", "value": 5, "asset": "EUR"}]
    entry = models.NewEntry.from_dict({"_id": "pay 1", "changes": changes, "ts": "2026-01-01T00:00:00Z"})
    posted = operation("ledgers", "post_entry")("db", "tx", client=client, body=entry)
    assert (posted.posted, posted.state) == (True, "VALID"), posted
    balance = operation("ledgers", "get_balance")("db", "tx", "ann", client=client)
    assert (balance.exists, balance.balance) == (True, 5), balance
    [listed] = operation("queues", "list_jobs")("db", "mails", client=client, state="DONE").jobs
    assert listed["_id"] == claimed.field_id, listed
    depth = operation("queues", "get_queue_depth")("db", "mails", client=client)
    assert (depth.done, depth.due, depth.paused) == (1, 0, False), depth
    with httpx.stream("GET", f"{url}/v1/events", timeout=60) as events:
        assert next(events.iter_lines()) == "event: server"
    release = operation("ledgers", "release_hold")("db", "tx", "none", client=client)
    assert isinstance(release, models.Problem) and release.status == 404, release


class Requests:
    """Requests made from the document: of the schemas, and of values that no schema has."""

    ODD = [None, True, -1, 0, 2**31, 2**63, -(2**63) - 1, 1.5, 1e308, "", "x" * 3000, "\0", "$a", "é\ud800".encode("utf-8", "replace").decode(),
           [], [[]], {}, {"$gt": ""}, {"$oid": "x"}, {"$oid": 7}, {"$date": "soon"}, {"$numberLong": "9" * 30}, {"$numberDecimal": "NaN"},
           {"$numberDouble": "NaN"}, {"$binary": {"base64": "!", "subType": "00"}}, {"$regularExpression": {"pattern": "a", "options": ""}},
           {"a": {"b": [{"c": None}]}}, {"$minKey": 1}, {"$undefined": True}, {"$timestamp": {"t": -1, "i": 0}}]
    IDS = ["ann", "7", "%22%22", "%7B%7D", "%00", "%FF", "a%2Fb", "x" * 2000, "65a1b2c3d4e5f60718293a4b", "%5B1%5D", "%7B%22$gt%22:%22%22%7D"]
    NAMES = ["db", "admin", "local", "config", "a.b", "%20", "x" * 70, "$x", "system.users", "tx", "jobs"]

    def __init__(self, document):
        self.document, self.random = document, random.Random(SEED)

    def value(self, schema):
        """Returns a value that mostly has the schema."""
        if self.random.random() < 0.15:
            return self.random.choice(self.ODD)
        if "$ref" in schema:
            schema = self.document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        if "enum" in schema:
            return self.random.choice(schema["enum"])
        if "anyOf" in schema:
            return self.value(self.random.choice(schema["anyOf"]))
        match schema.get("type"):
            case "object":
                fields = {name: self.value(found) for name, found in schema.get("properties", {}).items()
                          if name in schema.get("required", []) or self.random.random() < 0.3}
                if self.random.random() < 0.05:
                    fields[self.random.choice(["$db", "lsid", "unknown", "a.b", "__proto__"])] = 1
                return fields
            case "array":
                return [self.value(schema["items"]) for _ in range(self.random.randrange(4))]
            case "integer":
                return self.random.choice([schema.get("minimum", 0), 1, 5, schema.get("maximum", 9)])
            case "boolean":
                return self.random.random() < 0.5
            case "string":
                dates = ["2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "soon"]
                return self.random.choice(dates if schema.get("format") == "date-time" else ["EUR", "mail", "w", "a b", ""])
            case _:
                return self.random.choice(["ann", 7, {"$oid": "65a1b2c3d4e5f60718293a4b"}, {"a": 1}])

    def send(self, client, path, method, operation):
        for parameter in operation["parameters"]:
            if parameter["in"] == "path":
                known = self.NAMES if parameter["name"] in ("database", "queue", "ledger") else self.IDS
                name = "db" if parameter["name"] == "database" and self.random.random() < 0.8 else self.random.choice(known)
                path = path.replace("{" + parameter["name"] + "}", name)
        query = {found["name"]: self.random.choice(["1", "-1", "soon", "2026-01-01T00:00:00Z", "ann", "9" * 30])
                 for found in operation["parameters"] if found["in"] == "query" and self.random.random() < 0.4}
        headers, content = {}, None
        if self.random.random() < 0.3:
            headers["Idempotency-Key"] = self.random.choice(["k", "x" * 300, f"k{self.random.random()}", "a b"])
        if "requestBody" in operation:
            body = self.value(operation["requestBody"]["content"]["application/json"]["schema"])
            if isinstance(body, dict):
                body.pop("waitMillis", None)
            headers["Content-Type"] = self.random.choice(["application/json"] * 9 + ["text/plain"])
            content = self.random.choice([json.dumps(body)] * 20 + ["", "{", "[]", "{}", "\xff", "nul", '{"a":1e999}'])
        return client.request(method, path, params=query, headers=headers, content=content)

    def check(self, path, method, operation, answer):
        """Fails if the answer is none that the document describes."""
        sent = f"{answer.request.method} {answer.request.url} {answer.request.headers.get('idempotency-key')} {answer.request.content[:500]}: {answer.status_code} {answer.text[:500]}"
        known = operation["responses"].get(str(answer.status_code))
        assert known is not None, f"not in the document: {sent}"
        assert answer.status_code < 500 or answer.json()["type"].endswith(":contended"), f"the server has failed: {sent}"
        if "content" in known:
            assert answer.headers["content-type"] in known["content"], sent
            if answer.status_code >= 400:
                reply = answer.json()
                assert reply["type"] in known["description"] and reply["detail"], sent


def requests_at_random(url):
    document = httpx.get(f"{url}/openapi.json").json()
    requests, statuses = Requests(document), {}
    with httpx.Client(base_url=url, timeout=60) as client:
        for _ in range(ROUNDS):
            for path, methods in document["paths"].items():
                for method, operation in methods.items():
                    if "text/event-stream" in operation["responses"].get("200", {}).get("content", {}):
                        # Its answer has no end.
                        continue
                    answer = requests.send(client, path, method, operation)
                    requests.check(path, method, operation, answer)
                    statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
    assert statuses.get(200, 0) > 100 and statuses.get(400, 0) > 100, statuses


with tempfile.TemporaryDirectory(prefix="handfast-api-") as name:
    directory = Path(name)
    server, url = serve(directory)
    try:
        generate(url, directory)
        drive(url)
        requests_at_random(url)
        assert server.poll() is None, "the server has ended"
    finally:
        server.terminate()
        assert server.wait(timeout=60) == 0
