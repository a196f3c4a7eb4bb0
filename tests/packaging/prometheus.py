"""Alerts and dashboard with a real Prometheus: prometheus.py --handfast PROGRAM.

It scrapes a server under load, and an application that serves the metrics of the patterns as docs/metrics.md describes them.
"""

import contextlib
import http.server
import itertools
import json
import math
import re
import threading
import urllib.error
import urllib.parse
import urllib.request

import pymongo
import yaml

from common import PATIENCE_SECONDS, ROOT, flag, free_port, get, run, running, scratch, until, wait_until_ready

RULES = ROOT / "packaging/prometheus/alerts.yml"
TESTS = ROOT / "packaging/prometheus/alerts.test.yml"
EXAMPLE = ROOT / "packaging/prometheus/prometheus.yml"
DASHBOARD = json.loads((ROOT / "packaging/grafana/handfast.json").read_text())
# Several samples have to be in each range.
RANGE = "10s"


def rules():
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def check_rules(directory):
    """Prometheus accepts the files, and each alert has a case in which it fires and one in which it does not."""
    for file in (RULES, EXAMPLE):
        run("promtool", "check", "rules" if file == RULES else "config", file)
    run("promtool", "test", "rules", TESTS)
    cases = {}
    for case in yaml.safe_load(TESTS.read_text())["tests"]:
        for alert in case["alert_rule_test"]:
            cases.setdefault(alert["alertname"], set()).add(bool(alert["exp_alerts"]))
    lacking = [rule["alert"] for rule in rules() if cases.get(rule["alert"]) != {True, False}]
    assert not lacking, f"{TESTS}: {lacking} need a case that fires and one that does not"
    # The cases see another threshold.
    for file in (RULES, TESTS):
        (directory / file.name).write_text(file.read_text().replace("< 0.1", "< 0.01"))
    assert "HandfastConnectionsScarce fires" in run("promtool", "test", "rules", directory / TESTS.name, status=1)


def check_dashboard():
    """The panels have ids and places of their own, a description, and the data source that the user chooses."""
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = set(itertools.product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])))
        assert not cells & taken and place["x"] + place["w"] <= 24, f"{panel['title']} lies over another panel"
        taken |= cells
        if panel["type"] != "row":
            sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
            assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources), panel["title"]
    names = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)", json.dumps(panels)))
    assert used <= names, f"variables that there are not: {used - names}"


def documented_metrics():
    """Returns the metrics of the patterns in docs/metrics.md: name, kind, labels with their values."""
    document = (ROOT / "docs/metrics.md").read_text().split("\n## Server")[0]
    found = []
    for section in document.split("\n## ")[1:]:
        events = re.findall(r"^\| `(\w+)` \| (?!counter|gauge|histogram)", section, re.MULTILINE)
        for name, kind, labels, meaning in re.findall(r"^\| `(handfast_\w+)` \| (\w+) \| \w[^|]* \| ([^|]*) \| (.*) \|$", section, re.MULTILINE):
            values = {"collection": ["shop.things"], "runner": ["ledger.committer"], "event": events, "result": ["done", "failed"]}
            named = re.findall(r"`(\w+)`", meaning)
            found.append((name, kind, {label: values.get(label, named) for label in re.findall(r"`(\w+)`", labels)}))
    assert len(found) > 20 and all(all(values for values in labels.values()) for *_, labels in found), found
    return found


class Application(http.server.BaseHTTPRequestHandler):
    """Serves the documented metrics of the patterns. Counters rise with each scrape."""

    scrapes = itertools.count(1)
    metrics = documented_metrics()

    def do_GET(self):
        count, lines = next(self.scrapes), []
        for name, kind, labels in self.metrics:
            lines.append(f"# TYPE {name} {kind}")
            for values in itertools.product(*labels.values()):
                text = ",".join(f'{label}="{value}"' for label, value in zip(labels, values))
                if kind == "histogram":
                    lines += [f'{name}_bucket{{{text},le="{bound}"}} {count}' for bound in ("0.1", "+Inf")]
                    lines += [f"{name}_sum{{{text}}} {count * 0.05}", f"{name}_count{{{text}}} {count}"]
                else:
                    lines.append(f"{name}{{{text}}} {count}")
        body = ("\n".join(lines) + "\n").encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@contextlib.contextmanager
def application():
    """Returns the port of the application."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Application) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def load(port, api, ended):
    """Sends operations, transactions and requests, right and wrong ones, until `ended`."""
    headers = {"Content-Type": "application/json"}
    with pymongo.MongoClient(f"mongodb://127.0.0.1:{port}") as client, client.start_session() as session:
        for number in itertools.count():
            if ended.wait(0.05):
                return
            session.with_transaction(lambda s: client.shop.orders.insert_one({"_id": number}, session=s))
            client.shop.orders.find_one({"_id": number})
            with contextlib.suppress(pymongo.errors.PyMongoError):
                client.shop.orders.insert_one({"_id": number})
            for job in ({"_id": number, "type": "mail"}, {"kind": "wrong"}):
                request = urllib.request.Request(f"{api}/v1/shop/queues/jobs/jobs", json.dumps(job).encode(), headers)
                with contextlib.suppress(urllib.error.HTTPError):
                    urllib.request.urlopen(request, timeout=PATIENCE_SECONDS).close()


def expressions():
    """Returns the expressions of dashboard and alerts. Without its comparison, an alert has data also if it does not fire."""
    found = {}
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", []):
            text = target["expr"].replace("$__rate_interval", RANGE)
            found[f"{panel['title']} {target['refId']}"] = re.sub(r'"\$\w+"', '".*"', text)
    for rule in rules():
        text = re.sub(r"\[\d+[mh]\]", f"[{RANGE}]", rule["expr"])
        found[rule["alert"]] = re.sub(r"(==|<|>) [\d.]+", "", text)
    return found


def query(prometheus, expression):
    """Returns the values of an expression that are numbers."""
    answer = json.loads(get(f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"))
    return [float(sample["value"][1]) for sample in answer["data"]["result"] if not math.isnan(float(sample["value"][1]))]


def check_live(program, directory, services):
    """Each expression has data while there is load, Prometheus evaluates all rules, and one fires for a server that is gone."""
    log = directory / "handfast.log"
    started = contextlib.ExitStack()
    services.enter_context(started)
    serve = [program, "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--durability", "memory", "--data", directory / "data"]
    process = started.enter_context(running(serve, log))
    port, http_port = map(int, re.findall(r"127\.0\.0\.1:(\d+)", wait_until_ready(process, log)))
    api = f"http://127.0.0.1:{http_port}"

    # The example, with other addresses, and no time to wait.
    config = yaml.safe_load(EXAMPLE.read_text())
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(RULES)]
    targets = {"handfast": http_port, "applications": services.enter_context(application())}
    for job in config["scrape_configs"]:
        job["static_configs"] = [{"targets": [f"127.0.0.1:{targets[job['job_name']]}"]}]
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    web = free_port()
    command = ["prometheus", f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/tsdb", f"--web.listen-address=127.0.0.1:{web}"]
    services.enter_context(running(command, directory / "prometheus.log", stop_status=None))
    prometheus = f"http://127.0.0.1:{web}"

    ended = threading.Event()
    loading = threading.Thread(target=load, args=(port, api, ended))
    loading.start()
    try:
        until("Prometheus answers", lambda: ready(prometheus))
        lacking = expressions()

        def have_data():
            for name in list(lacking):
                if query(prometheus, lacking[name]):
                    del lacking[name]
            return not lacking

        try:
            until("each expression has data", have_data)
        except AssertionError as error:
            raise AssertionError(f"{error}: {lacking}") from None
    finally:
        ended.set()
        loading.join()

    evaluated = [rule for group in json.loads(get(f"{prometheus}/api/v1/rules"))["data"]["groups"] for rule in group["rules"]]
    assert len(evaluated) == len(rules()) and all(rule["health"] == "ok" for rule in evaluated), evaluated
    until("no alert says that the server is gone", lambda: not query(prometheus, 'ALERTS{alertname="HandfastDown"}'))
    started.close()
    until("the alert for a server that is gone is pending", lambda: query(prometheus, 'ALERTS{alertname="HandfastDown"}'))


def ready(prometheus):
    """Returns whether Prometheus answers."""
    try:
        return get(f"{prometheus}/-/ready")
    except OSError:
        return None


with scratch() as directory, contextlib.ExitStack() as services:
    check_rules(directory)
    check_dashboard()
    check_live(flag("handfast"), directory, services)
