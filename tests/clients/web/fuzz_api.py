"""Sends the requests that the OpenAPI document of the HTTP API allows, and others, and judges the answers (schemathesis): fuzz_api.py --handfast PROGRAM.

A failure is an answer of the server's own mistake (5xx), and a status, a media type, a header or a body that the document does not have. The requests are the same in each run.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKS = ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance", "response_schema_conformance"]
# What no request at random can judge: the answer of events has no end.
ENDLESS = "/v1/events"
# The requests for each operation, beside those of the limits of each parameter.
REQUESTS = 4
# A claim waits for as long as it is asked to.
SECONDS_MAX = 45

handfast = sys.argv[sys.argv.index("--handfast") + 1]


def main():
    with tempfile.TemporaryDirectory() as directory:
        serve = [handfast, "serve", "--data", str(Path(directory) / "data"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--durability", "memory"]
        server = subprocess.Popen(serve + ["--log-level", "error"], stdout=subprocess.PIPE, text=True)
        try:
            line = server.stdout.readline()
            url = re.search(r"http://[0-9.:]+", line)
            assert url and server.stdout.readline().strip() == "ready", line
            run = [sys.executable, "-m", "schemathesis.cli", "run", f"{url.group()}/openapi.json", "--phases", "coverage,fuzzing"]
            run += ["--checks", ",".join(CHECKS), "--seed", "7", "--generation-deterministic", "--max-examples", str(REQUESTS), "--no-shrink"]
            run += ["--exclude-path", ENDLESS, "--continue-on-failure", "--request-timeout", str(SECONDS_MAX), "--warnings", "off", "--no-color"]
            # Proxies are for other hosts than this one.
            environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
            judged = subprocess.run(run, cwd=directory, env=environment, capture_output=True, text=True)
            assert judged.returncode == 0, judged.stdout + judged.stderr
            assert server.poll() is None, "the server has ended"
        finally:
            server.terminate()
            server.wait()


main()
