"""Scripts of commands with the answers that MongoDB documents: read, sent to a server, and written as text.

    case: $inc adds, and creates the field when it is missing
    > insert c {_id: 1, n: 5}
    > update c {_id: 1}, {$inc: {n: 2, m: 1}}
    n: 1, nModified: 1
    > find c {}
    {_id: 1, n: 7, m: 1}
    ! ferretdb: some-reason

A case begins in an empty database. A step is a line with `>` (it goes on over indented lines); the lines under it are the
answer as MongoDB documents it; `! SERVER: REASON` says that this server answers otherwise, and which row of differences.md says
why. A step without an answer must merely succeed. `error 2 BadValue ~ text` asks, of us and of MongoDB, that the message holds
the text; messages of other servers are their own, and so are their names for codes that have none. Fresh ids, the database's name,
the order of `distinct` and whether a cursor's id is 0 are written alike for all.

Commands: `insert c [documents]`, `find c filter, ..`, `aggregate c [stages], ..`, `update c q, u, ..`, `delete c q, ..` (all matches,
or `limit: 1`), `count c query`, `distinct c "key", query`, `findAndModify c query, update, ..`, `createIndexes c key, ..`, `command {..}`,
`admin {..}`; behind `=>` stand the fields of the reply to show. find and aggregate read their cursor to its end.
"""

import dataclasses
import re

import pymongo
from bson import Int64, ObjectId
from bson.raw_bson import RawBSONDocument

from notation import CODEC, NotationError, Reader, parse, show

STATEMENT_OPTIONS = {"multi", "upsert", "arrayFilters", "collation", "hint", "c", "sort"}
ENVELOPE = {"ok", "$clusterTime", "operationTime", "electionId", "opTime", "$configServerState", "$gleStats", "lastCommittedOpTime"}
ENVELOPE_ORDER = ["n", "nModified", "upserted", "writeErrors", "value", "lastErrorObject"]
CURSOR_BATCHES_MAX = 10_000


@dataclasses.dataclass
class Step:
    """One command with its documented answer."""

    line: int
    text: str
    expected: list = dataclasses.field(default_factory=list)
    marks: dict = dataclasses.field(default_factory=dict)
    last_line: int = 0


@dataclasses.dataclass
class Case:
    """Steps that run one after the other in a database of their own."""

    script: str
    title: str
    line: int
    steps: list = dataclasses.field(default_factory=list)


def read_script(path):
    """Returns the cases of a script file, in order."""
    cases = []
    step = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            step = None if not line.strip() else step
            continue
        if line.startswith("case: "):
            cases.append(Case(path.stem, line[6:].strip(), number))
            step = None
        elif line.startswith("> "):
            step = Step(number, line[2:], last_line=number)
            cases[-1].steps.append(step)
        elif step is None:
            raise NotationError(f"{path.name}:{number}: an answer without a command: {line}")
        elif line.startswith("! "):
            server, _, reason = line[2:].partition(":")
            step.marks[server.strip()] = reason.strip()
            step.last_line = number
        elif line[0] == " " and not step.expected and not step.marks:
            step.text += " " + line.strip()
            step.last_line = number
        else:
            step.expected.append(line)
            step.last_line = number
    titles = [case.title for case in cases]
    for title in titles:
        if titles.count(title) > 1:
            raise NotationError(f"{path.name}: two cases are called «{title}»")
    return cases


def read_command(text, variables):
    """Parses a command. Returns its document, whether it runs on admin, the fields to show (or None), and whether the cursor is read to its
    end."""
    shown = None
    if " => " in text:
        text, _, names = text.rpartition(" => ")
        shown = [name.strip() for name in names.split(",")]
    reader = Reader(text, variables)
    name = reader.take(re.compile(r"\w+"), "a command").group()
    if name in ("command", "admin"):
        command = reader.value()
        if not reader.end():
            reader.fail("something is left over")
        return command, name == "admin", shown, False
    collection = reader.key()
    values, options = [], {}
    while not reader.end():
        if reader.peek() in "{[\"'/":
            values.append(reader.value())
        else:
            key = reader.key()
            reader.eat(":")
            options[key] = reader.value()
        if not reader.end():
            reader.eat(",")
    return build_command(name, collection, values, options), False, shown, name in ("find", "aggregate")


def build_command(name, collection, values, options):
    """Returns the command document of a short line."""
    statement = {k: v for k, v in options.items() if k in STATEMENT_OPTIONS}
    rest = {k: v for k, v in options.items() if k not in STATEMENT_OPTIONS}
    command = {name: collection}
    match name, values:
        case "insert", [list() as documents]:
            command |= {"documents": documents}
        case "insert", documents:
            command |= {"documents": documents}
        case "find", [*filters]:
            command |= dict(zip(["filter"], filters))
            rest = options
        case "aggregate", [pipeline]:
            command |= {"pipeline": pipeline, "cursor": {}}
            rest = options
        case "count", [*queries]:
            command |= dict(zip(["query"], queries))
            rest = options
        case "distinct", [key, *queries]:
            command |= {"key": key} | dict(zip(["query"], queries))
            rest = options
        case "update", [query, change]:
            command |= {"updates": [{"q": query, "u": change} | statement]}
        case "delete", [query]:
            limit = rest.pop("limit", 0)
            command |= {"deletes": [{"q": query, "limit": limit} | statement]}
        case "findAndModify", [query, *change]:
            command |= {"query": query} | dict(zip(["update"], change))
            rest = options
        case "createIndexes", [key]:
            index_name = options.pop("name", "_".join(f"{field}_{direction}" for field, direction in key.items()))
            command |= {"indexes": [{"key": key, "name": index_name} | options]}
            rest = {}
        case _:
            raise NotationError(f"cannot build {name} from {values}")
    return command | rest


class Runner:
    """Sends the steps of one case to one server and writes down the answers."""

    def __init__(self, client, database, script_text):
        self.client = client
        self.database = database
        self.known_ids = set(re.findall(r"[0-9a-f]{24}", script_text))
        self.cursor = 0

    def answer(self, step):
        """Sends a step and returns the answer as lines."""
        try:
            return self.run(step)
        except pymongo.errors.AutoReconnect:
            raise
        except pymongo.errors.OperationFailure as error:
            details = error.details or {}
            self.message = details.get("errmsg", str(error))
            return [f"error {error.code} {details.get('codeName', '')}".strip()]
        except NotationError as error:
            raise NotationError(f"line {step.line}: {error}") from None

    def run(self, step):
        self.message = ""
        command, on_admin, shown, drain = read_command(step.text, {"CURSOR": Int64(self.cursor), "DATABASE": self.database})
        database = self.client["admin" if on_admin else self.database]
        reply = database.command(command, codec_options=CODEC, check=True)
        if "cursor" in reply:
            self.cursor = int(reply["cursor"]["id"])
        if drain:
            return self.drain(database, next(iter(command.values())), reply)
        if shown is not None:
            reply = {name: value for name in shown if (value := dig(reply, name)) is not None}
        return self.lines(reply, () if shown is not None else ENVELOPE)

    def drain(self, database, collection, reply):
        batch = reply["cursor"]["firstBatch"]
        cursor = reply["cursor"]["id"]
        namespace = reply["cursor"]["ns"].partition(".")[2]
        for _ in range(CURSOR_BATCHES_MAX):
            if not cursor:
                break
            reply = database.command({"getMore": Int64(cursor), "collection": namespace}, codec_options=CODEC)
            batch = batch + reply["cursor"]["nextBatch"]
            cursor = reply["cursor"]["id"]
        return [show(self.stable(document)) for document in batch] or ["nothing"]

    def lines(self, reply, hidden):
        parts = []
        first = {key: place for place, key in enumerate(ENVELOPE_ORDER)}
        for key, value in sorted(reply.items(), key=lambda item: (first.get(item[0], len(first)), item[0])):
            if key in hidden:
                continue
            if key == "writeErrors":
                self.message = " ".join(error.get("errmsg", "") for error in value)
                value = [{"index": error["index"], "code": error["code"]} for error in value]
            if key == "cursor" and isinstance(value, dict):
                value = dict(value, id="open" if value.get("id") else "closed")
                if "ns" in value:
                    value["ns"] = value["ns"].partition(".")[2]
                value = dict(sorted(value.items()))
            if key == "values":
                value = sorted(value, key=show)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                value = int(value) if value == int(value) else value
            parts.append(f"{key}: {show(self.stable(value))}")
        return [", ".join(parts) or "fine"]

    def stable(self, value):
        """Replaces the parts of a value that differ between runs: fresh ids and the name of the database."""
        if isinstance(value, RawBSONDocument):
            value = dict(value)
        if isinstance(value, dict):
            return {key: self.stable(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.stable(inner) for inner in value]
        if isinstance(value, ObjectId) and str(value) not in self.known_ids:
            return "fresh id"
        if isinstance(value, str) and self.database in value:
            return value.replace(self.database, "DATABASE")
        return value


def without_name(line):
    """Returns an error without its name: servers agree on codes, but not on the names of codes without an official one."""
    return " ".join(line.split()[:2]) if line.startswith("error ") else line


def dig(document, path):
    """Returns the value at a dotted path of a reply, or None."""
    for name in path.split("."):
        if not isinstance(document, dict) or name not in document:
            return None
        document = document[name]
    return document


def agrees(step, lines, message, strict):
    """Returns whether an answer is the documented one; `strict` also compares the message."""
    if not step.expected:
        return not any(line == "no answer" or line.startswith("error ") or "writeErrors: " in line for line in lines)
    expected = [line.split(" ~ ")[0].rstrip() for line in step.expected]
    if not strict:
        expected, lines = [[without_name(line) for line in side] for side in (expected, lines)]
    if expected != lines:
        return False
    wanted = [line.split(" ~ ")[1].strip() for line in step.expected if " ~ " in line]
    return not strict or all(text in message for text in wanted)
