"""Makes a client from the document of a service, and calls each of its operations: generated.py URL TOKEN DIRECTORY.

A warning of the generator is a failure, and so is a status or a field that the document does not have.
"""

import json
import subprocess
import sys
import time
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

PATIENCE_SECONDS = 60
# Pictures, which the generator does not know. Nothing formats the code: nobody reads it.
CONFIG = {
    "content_type_overrides": {"image/svg+xml": "application/octet-stream", "image/gif": "application/octet-stream"},
    "post_hooks": [],
}

url, token, directory = sys.argv[1], sys.argv[2], Path(sys.argv[3])
config = directory / "config.json"
config.write_text(json.dumps(CONFIG))
command = [sys.executable, "-m", "openapi_python_client", "generate", "--url", f"{url}/openapi.json", "--meta", "none"]
command += ["--config", str(config), "--output-path", str(directory / "counters_client"), "--fail-on-warning"]
made = subprocess.run(command, capture_output=True, text=True)
assert made.returncode == 0, made.stdout + made.stderr
sys.path.insert(0, str(directory))

from counters_client import AuthenticatedClient, Client  # noqa: E402
from counters_client.api.figures import get_badge, get_daily, get_top, get_total, get_totals  # noqa: E402
from counters_client.api.pages import get_open_api  # noqa: E402
from counters_client.api.state import get_health, get_metrics, get_readiness, get_status  # noqa: E402
from counters_client.api.views import count_view_by_pixel, count_views, delete_item  # noqa: E402
from counters_client.models import Problem, Views  # noqa: E402

writer = AuthenticatedClient(base_url=url, token=token, raise_on_unexpected_status=True)
reader = Client(base_url=url, raise_on_unexpected_status=True)


def until(what, condition):
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, f"it does not come about that {what}"
        time.sleep(0.02)


def refused(problem, status, name):
    assert isinstance(problem, Problem), problem
    assert (problem.status, problem.type_) == (status, f"urn:handfast:problem:{name}"), problem
    assert problem.title and problem.detail, problem
    return problem


# One request with a key, sent twice, and views of another item.
for _ in range(2):
    counted = count_views.sync("ads", "7", client=writer, body=Views(n=3), idempotency_key="first")
    assert (counted.total, counted.partial) == (3, False), counted
assert count_views.sync("ads", "8", client=writer).total == 1

total = get_total.sync("ads", "7", client=reader)
assert (total.kind, total.id, total.total, total.partial) == ("ads", "7", 3, False), total
batch = get_totals.sync("ads", client=reader, ids="8,7,none")
assert [(item.id, item.total) for item in batch.totals] == [("8", 1), ("7", 3), ("none", 0)], batch

until("the views are saved", lambda: [item.views for item in get_top.sync("ads", client=reader).items] == [3, 1])
top = get_top.sync("ads", client=reader, n=1)
assert [(item.id, item.views) for item in top.items] == [("7", 3)], top
# The views are of today or, around midnight, of yesterday.
today = datetime.now(timezone.utc).date()
days = get_daily.sync("ads", "7", client=reader, from_=today - timedelta(days=2), to=today)
assert [day.day for day in days.days] == [today - timedelta(days=back) for back in (2, 1, 0)], days
assert (days.from_, days.to, days.views, days.time_zone) == (today - timedelta(days=2), today, 3, "UTC"), days
assert sum(day.views for day in days.days) == 3, days

deleted = delete_item.sync_detailed("ads", "7", client=writer)
assert (deleted.status_code, deleted.parsed) == (204, None), deleted
assert get_total.sync("ads", "7", client=reader).total == 0

problem = refused(get_daily.sync("ads", "7", client=reader, from_=date(2026, 2, 2), to=date(2026, 2, 1)), 400, "invalid-request")
assert "from" in problem.detail and "to" in problem.detail, problem
refused(get_total.sync("Ads", "7", client=reader), 400, "invalid-request")
problem = refused(count_views.sync("ads", "7", client=reader), 401, "unauthorized")
assert problem.outcome == "not_applied", problem
assert get_total.sync("ads", "7", client=reader).total == 0

assert get_badge.sync_detailed("ads", "8", client=reader).content.startswith(b"<svg")
assert count_view_by_pixel.sync_detailed("ads", "9", client=reader).content.startswith(b"GIF89a")
assert get_health.sync(client=reader).to_dict() and get_readiness.sync(client=reader).to_dict()
assert get_status.sync(client=writer, kind="ads").kind.kind == "ads"
assert "handfast_counters_" in get_metrics.sync(client=writer)
assert get_open_api.sync(client=reader).to_dict()["openapi"] == "3.1.1"
