"""Sends the same commands to several servers and compares every answer with the documented one.

    python run.py                         all servers that are installed; exit code 1 when something is unexplained
    python run.py --server handfast       one server
    python run.py --only updates          scripts (or SCRIPT/CASE beginnings)
    python run.py --show                  prints each differing answer
    python run.py --write                 rewrites differences.md's counts from the marks in the scripts
    python run.py --record SERVER         writes SERVER's answers under steps that have none (then judge them by the documentation)

See README.md for the rules.
"""

import argparse
import collections
import os
import pathlib
import re
import sys

import pymongo

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "harness"))

import script as scripts  # noqa: E402
import servers  # noqa: E402

TABLE = HERE / "differences.md"
JUDGED = ("handfast", "mongodb")
LANGUAGE = HERE.parent.parent / "crates" / "handfast-mql" / "src"
OPERATOR = r"\$[a-z][A-Za-z0-9]*"
# Names in the language's sources that no script has to ask for.
NOT_ASKED = {
    # refused by name, as the documentation of the language says
    "$accumulator", "$array", "$changeStream", "$changeStreamSplitLargeEvent", "$currentOp",
    "$geoIntersects", "$geoNear", "$geoWithin", "$listLocalSessions",
    "$listSampledQueries", "$listSearchIndexes", "$listSessions", "$meta", "$near", "$nearSphere",
    "$querySettings", "$rankFusion", "$score", "$scoreFusion", "$search", "$searchMeta",
    "$shardedDataDistribution", "$vectorSearch", "$within",
    # parts of a reference to a document, and fields in examples
    "$ref", "$db", "$fee", "$path", "$price", "$tags",
    # on no collection: a script's short line always names one
    "$documents",
}
TRIES_MAX = 3
SOCKET_MILLISECONDS = 20_000


def main():
    options = arguments()
    cases = [case for path in sorted((HERE / "scripts").glob("*.script")) for case in scripts.read_script(path)]
    problems = check_table(cases, options.write) + not_asked_for()
    if options.only:
        cases = [case for case in cases if any(f"{case.script}/{case.title}".startswith(only) for only in options.only)]
    if not cases:
        sys.exit("no case is called that")
    commands = sum(len(case.steps) for case in cases)
    checked = sum(1 for case in cases for step in case.steps if step.expected)
    print(f"{len(cases)} cases, {commands} commands, {checked} of them with a documented answer")
    for name in options.server or list(servers.ALL):
        try:
            server = servers.ALL[name]() if name != "handfast" else servers.Handfast(options.handfast)
            problems += run_server(server, cases, options)
        except servers.Missing as missing:
            if options.server or (os.environ.get("CI") == "true" and name != "mongodb"):
                problems.append(f"{name}: {missing}")
            else:
                print(f"skipped {name}: {missing}")
    for problem in problems:
        print("FAILED", problem)
    return 1 if problems else 0


def not_asked_for():
    """Returns lines about operators of the language that no script uses, and about exceptions that are no longer needed."""
    sources = [path.read_text() for path in LANGUAGE.rglob("*.rs") if "tests" not in path.parts and path.stem != "tests"]
    known = {name for source in sources for name in re.findall(f'"({OPERATOR})"', source)}
    asked = {name for path in (HERE / "scripts").glob("*.script") for name in re.findall(OPERATOR, path.read_text())}
    return [f"no script asks for {name}" for name in sorted(known - asked - NOT_ASKED)] + [
        f"{name} need not be in NOT_ASKED" for name in sorted(NOT_ASKED & asked | NOT_ASKED - known)
    ]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", action="append", choices=list(servers.ALL))
    parser.add_argument("--only", action="append")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--record", choices=list(servers.ALL))
    parser.add_argument("--handfast", help="the program to test")
    return parser.parse_args()


def run_server(server, cases, options):
    """Runs all cases against a server, and returns the failures as lines."""
    problems, same, explained = [], 0, 0
    answers = {}
    with server:
        script = None
        for case in cases:
            if server.name == "secantusdb" and script not in (None, case.script):
                server.restart()
            script = case.script
            for step, lines, message in run_case(server, case):
                answers[(case.script, step.line)] = lines
                where = f"{case.script}.script:{step.line}"
                good = scripts.agrees(step, lines, message, server.name in JUDGED)
                reason = step.marks.get(server.name)
                if good and not reason:
                    same += 1
                elif not good and reason:
                    explained += 1
                elif good and server.name in JUDGED:
                    problems.append(f"{where}: {server.name} now answers as documented; remove the mark ({reason})")
                elif good:
                    # A difference of another server that occurs only sometimes is not a failure.
                    print(f"{where}: {server.name} answers as documented for once ({reason})")
                else:
                    problems.append(f"{where}: {server.name} answers otherwise")
                if not good and options.show:
                    print(f"--- {where} {server.name} {reason or 'UNEXPLAINED'}\n> {step.text}")
                    print("\n".join(f"- {line}" for line in step.expected or ["success"]))
                    print("\n".join(f"+ {line}" for line in lines), message)
    print(f"{server.name}: {same} as documented, {explained} differ for a listed reason, {len(problems)} problems")
    if options.record == server.name:
        record(cases, answers)
    return problems


def run_case(server, case):
    """Returns the answers of a case: (step, lines, message). A server that stops answering is restarted; "no answer" is its answer
    only after several attempts."""
    for attempt in range(1, TRIES_MAX + 1):
        out = list(run_steps(server, case))
        lost = [message for _, lines, message in out if lines == ["no answer"]]
        if not lost:
            return out
        if not server.alive() or server.name == "secantusdb":
            server.restart()
        if server.name != "secantusdb" or attempt == TRIES_MAX:
            return out
        print(f"{server.name}: no answer in {case.script}/{case.title}, try {attempt}: {lost[0]}")
    raise AssertionError("the loop returns")


def run_steps(server, case):
    """Runs the steps in a fresh database; a step without an answer costs the connection, not the rest of the case."""
    database = "t_" + re.sub(r"\W+", "_", f"{case.script}_{case.line}")
    text = "\n".join(step.text for step in case.steps)
    settings = {"socketTimeoutMS": SOCKET_MILLISECONDS, "serverSelectionTimeoutMS": 3000, "retryWrites": False, "retryReads": False}
    with pymongo.MongoClient(server.uri, **settings) as client:
        runner = scripts.Runner(client, database, text)
        dropped = False
        for step in case.steps:
            try:
                if not dropped:
                    client.drop_database(database)
                    dropped = True
                lines = runner.answer(step)
                yield step, lines, runner.message
            except pymongo.errors.AutoReconnect as error:
                yield step, ["no answer"], str(error)
        if server.alive():
            try:
                client.drop_database(database)
            except pymongo.errors.PyMongoError:
                pass


def record(cases, answers):
    """Writes answers below the steps that have none."""
    for name in {case.script for case in cases}:
        path = HERE / "scripts" / f"{name}.script"
        lines = path.read_text().splitlines()
        for case in reversed([case for case in cases if case.script == name]):
            for step in reversed(case.steps):
                if not step.expected and step.text.split()[0] not in ("insert", "createIndexes"):
                    lines[step.last_line : step.last_line] = answers.get((name, step.line), [])
        path.write_text("\n".join(lines) + "\n")


def check_table(cases, write):
    """Checks that differences.md and the marks have the same reasons, each as often as the table says."""
    places = collections.defaultdict(list)
    for case in cases:
        for step in case.steps:
            for server, reason in step.marks.items():
                places[(server, reason)].append(f"{case.script}:{step.line}")
    text = TABLE.read_text()
    problems, seen, lines = [], set(), []
    for line in text.splitlines():
        row = re.match(r"\| (\w+) \| ([\w-]+) \| *(\d*) *\| (.*?) \|$", line)
        if row:
            server, reason, count, why = row.groups()
            seen.add((server, reason))
            found = len(places.get((server, reason), []))
            if found == 0:
                problems.append(f"differences.md: {server} {reason} is marked nowhere")
            elif str(found) != count and not write:
                problems.append(f"differences.md: {server} {reason}: {found} marks, the table says {count}; run.py --write")
            line = f"| {server} | {reason} | {found} | {why} |"
        lines.append(line)
    for server, reason in sorted(set(places) - seen):
        problems.append(f"differences.md: no row for {server} {reason} ({', '.join(places[(server, reason)][:5])})")
    if write:
        TABLE.write_text("\n".join(lines) + "\n")
    return problems


if __name__ == "__main__":
    sys.exit(main())
