"""Runs files of pymongo's own test suite against the server that MONGODB_URI names, and holds the outcome against a table in counts/.

    python run.py GROUP              exit code 1 when a file passes fewer tests than the table says, or something fails without a reason
                                     in it; what is better than the table is said, and is no failure
    python run.py GROUP --write      writes the table anew, keeping the reasons and what is left out; a failure without a reason gets "?",
                                     which does not pass the gate
    python run.py GROUP --only test_cursor.py

    standalone       against `handfast serve --topology standalone`
    replica-set      the same files against `handfast serve --test-commands`
    transactions     transactions, sessions, retryable writes and reads, change streams, against `handfast serve --test-commands`
    mongos           those of transactions against `handfast serve --topology mongos --test-commands`: cases that only a router is asked
    auth             logins, and sessions of users, against `handfast serve --auth --test-commands` with the user "boss" (role root), whose
                     password is in BOSS_PASSWORD
    store            documents, sessions and transactions against `handfast serve --test-commands --store URI` before another `handfast serve`

The suite is downloaded by scripts/install-test-tools and never committed. Its tests skip what they find no support for, so an
unreachable server would look like success: that is why the number of passed tests is what counts.
"""

import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree
from urllib.parse import urlsplit

HERE = pathlib.Path(__file__).resolve().parent
TOOLS = pathlib.Path(os.environ.get("HANDFAST_TEST_TOOLS", HERE.parents[1] / "target" / "test-tools"))
SUITE = TOOLS / "pymongo-4.20.0"
TABLES = HERE / "counts"
FILES = [
    "test_bulk.py",
    "test_collation.py",
    "test_collection.py",
    "test_collection_management.py",
    "test_command_monitoring.py",
    "test_comment.py",
    "test_crud_unified.py",
    "test_crud_v1.py",
    "test_cursor.py",
    "test_custom_types.py",
    "test_database.py",
    "test_index_management.py",
    "test_monitoring.py",
    "test_raw_bson.py",
    "test_read_concern.py",
    "test_run_command.py",
    "test_session.py",
    "test_write_concern.py",
]
TRANSACTION_FILES = [
    "test_causal_consistency.py",
    "test_change_stream.py",
    "test_read_write_concern_spec.py",
    "test_retryable_reads.py",
    "test_retryable_reads_unified.py",
    "test_retryable_writes.py",
    "test_retryable_writes_unified.py",
    "test_sessions_unified.py",
    "test_transactions.py",
    "test_transactions_unified.py",
]
# Where drivers do otherwise in front of a router.
MONGOS_FILES = ["test_transactions.py", "test_transactions_unified.py"]
# What is asked of users: and of large files only the tests that are about them.
AUTH_FILES = ["test_auth.py", "test_auth_spec.py", "test_bulk.py", "test_client.py", "test_transactions.py", "test_sessions_unified.py"]
# What reaches the documents, and so the store behind, in a minute or two; the rest is the server's own affair, and the same over any store.
STORE_FILES = [
    "test_crud_v1.py",
    "test_sessions_unified.py",
    "test_transactions.py",
    "test_transactions_unified.py",
]
GROUPS = {
    "standalone": FILES,
    "replica-set": FILES,
    "transactions": TRANSACTION_FILES,
    "mongos": MONGOS_FILES,
    "store": STORE_FILES,
    "auth": AUTH_FILES,
}
CHOSEN = {"auth": "(not test_bulk and not test_client) or auth or username_and_password"}
# What a driver of other languages has, and the suite marks as bound to fail.
NOT_IN_PYMONGO = re.compile("ListDatabaseObjects|ListCollectionObjects|MapReduce", re.IGNORECASE)
# These judge by short times, which a busy machine does not keep: one that fails is run again alone, a few times.
TIMED = {
    "TestTransactionsConvenientAPI.test_4_retry_backoff_is_enforced": "compares the times of two transactions to half a second",
    "TestUnifiedErrorLabelsBlockConnection.test_add_RetryableWriteError_and_UnknownTransactionCommitResult_labels_to_connection_errors":
        "gives each answer a tenth of a second",
}
TIMED_RUNS_MAX = 5
SUITE_SECONDS_MAX = 800

HEADER = """# What of pymongo's own suite passes against `handfast serve`: python tests/pymongo-suite/run.py {group} --write
#
# `passed` is the gate. `skips` are the suite's own words for what it did not run, with how often. `fails` names every test that
# does not pass, with the reason; `left_out` those that are not even run, as they would only wait, half a minute each.
"""


def main():
    options = arguments()
    address = urlsplit(os.environ["MONGODB_URI"])
    files = options.only or GROUPS[options.group]
    path = TABLES / f"{options.group}.toml"
    table = tomllib.loads(path.read_text()) if path.exists() else {}

    def run(targets, without):
        return run_suite(address.hostname, address.port, options.group, targets, without)

    outcome = run([f"test/{name}" for name in files], left_out(files, table))
    run_timed_alone(outcome, lambda target: run([target], []))
    if options.write:
        path.write_text(written_table(options.group, table, outcome))
        return 0
    problems = []
    for name in files:
        problems += check_file(name, table.get(name, {}), outcome.get(name, empty()))
    for problem in problems:
        print("FAILED", problem)
    return 1 if problems else 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("group", choices=GROUPS)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", action="append")
    return parser.parse_args()


def empty():
    return {"passed": 0, "skips": collections.Counter(), "fails": {}}


def left_out(files, table):
    """Returns the names of the tests that are not run, in the form of pytest."""
    return [target_of(file, test) for file in files for test in table.get(file, {}).get("left_out", {})]


def target_of(file, test):
    return f"test/{file}::{test.replace('.', '::')}"


def run_timed_alone(outcome, run):
    """Runs those of TIMED that have failed again, each alone, and counts one that passes then."""
    for name, file in outcome.items():
        for test in [test for test in file["fails"] if test in TIMED]:
            for attempt in range(TIMED_RUNS_MAX):
                if run(target_of(name, test))[name]["passed"]:
                    print(f"{name}: {test} passed alone, at attempt {attempt + 1}: it {TIMED[test]}")
                    del file["fails"][test]
                    file["passed"] += 1
                    break


def run_suite(host, port, group, targets, without):
    """Runs files or tests, and returns for each file the passed tests, the skipped ones by reason, and the failed ones with their messages."""
    with tempfile.TemporaryDirectory() as directory:
        report = pathlib.Path(directory) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "default_address", "-o", "addopts="]
        # A test that fails may leave threads behind. Their errors would count against the test that runs when they come.
        command += ["-p", "no:threadexception"]
        command += ["-m", "default or auth", "-k", CHOSEN[group]] if group in CHOSEN else ["-m", "default"]
        command += [f"--deselect={test}" for test in without]
        command += ["--no-header", "--tb=line", "-o", "faulthandler_timeout=60", f"--junitxml={report}"]
        environment = dict(os.environ, DB_IP=host, DB_PORT=str(port), PYTHONPATH=str(HERE), PYTHONDONTWRITEBYTECODE="1")
        if group == "auth":
            environment.update(DB_USER="boss", DB_PASSWORD=os.environ["BOSS_PASSWORD"])
        log = pathlib.Path(directory) / "log.txt"
        with log.open("w") as output:
            subprocess.run(
                [*command, *targets],
                cwd=SUITE, env=environment, stdout=output, stderr=subprocess.STDOUT, timeout=SUITE_SECONDS_MAX, check=False,
            )
        if not report.exists():
            sys.exit("pytest wrote no report:\n" + log.read_text()[-3000:])
        cases = xml.etree.ElementTree.parse(report).getroot().iter("testcase")
        return sort_cases(cases)


def sort_cases(cases):
    outcome = collections.defaultdict(empty)
    for case in cases:
        parts = case.get("classname").split(".")
        module = next(part for part in parts if part.startswith("test_"))
        name = ".".join(parts[parts.index(module) + 1 :] + [case.get("name")])
        file = outcome[f"{module}.py"]
        skipped = case.find("skipped")
        failed = case.find("failure") if case.find("failure") is not None else case.find("error")
        if skipped is not None:
            file["skips"][why_skipped(skipped, name)] += 1
        elif failed is not None:
            file["fails"][name] = (failed.get("message") or "").splitlines()[0] if failed.get("message") else "?"
        else:
            file["passed"] += 1
    return outcome


def why_skipped(skipped, name):
    """Returns the suite's reason for a skipped test; a test that is expected to fail has none."""
    if skipped.get("type") == "pytest.xfail" and (missing := NOT_IN_PYMONGO.search(name)):
        return f"the suite expects it to fail: pymongo has no {missing[0]}"
    return re.sub(r"^.*\.py:\d+: ", "", skipped.get("message") or "no word")


def check_file(name, row, found):
    """Returns results that are worse than in the table, or not in it. Prints better ones, which --write puts into the table."""
    problems = []
    passed = row.get("passed")
    without = len(row.get("left_out", {}))
    counts = [f"{found['passed']} passed", f"{sum(found['skips'].values())} skipped", f"{len(found['fails'])} failed"]
    print(f"{name}: {', '.join(counts)}, {without} left out")
    if passed is None:
        return [f"{name} has no row in the table"]
    if found["passed"] > passed:
        print(f"better: {name}: {found['passed']} passed, the table says {passed}; run with --write")
    if found["passed"] < passed:
        problems.append(f"{name}: {found['passed']} passed, the table says {passed}")
    reasons = row.get("fails", {})
    for test, message in found["fails"].items():
        if reasons.get(test, "?") == "?":
            problems.append(f"{name}: {test} fails without a reason in the table: {message[:300]}")
    for test in set(reasons) - set(found["fails"]):
        print(f"better: {name}: {test} does not fail any more; run with --write")
    return problems


def written_table(group, table, outcome):
    lines = [HEADER.format(group=group)]
    for name in GROUPS[group]:
        found = outcome.get(name)
        row = table.get(name, {})
        if found is None:
            found = {"passed": row.get("passed", 0), "skips": row.get("skips", {}), "fails": row.get("fails", {})}
        lines.append(f'["{name}"]\npassed = {found["passed"]}')
        if found["skips"]:
            lines.append(f'\n["{name}".skips]')
            lines += [f"{quote(reason)} = {count}" for reason, count in sorted(found["skips"].items())]
        if found["fails"]:
            lines.append(f'\n["{name}".fails]')
            for test, message in sorted(found["fails"].items()):
                print(f"{name} {test}: {message[:400]}")
                lines.append(f'{quote(test)} = {quote(row.get("fails", {}).get(test, "?"))}')
        if row.get("left_out"):
            lines.append(f'\n["{name}".left_out]')
            lines += [f"{quote(test)} = {quote(reason)}" for test, reason in sorted(row["left_out"].items())]
        lines.append("")
    return "\n".join(lines)


def quote(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


if __name__ == "__main__":
    sys.exit(main())
