"""BSON as people write it in MongoDB's shell: read and printed, so that scripts can be read aloud.

    {_id: 1, a.b: [NumberLong(2), 1.0, NumberDecimal("1.5")], when: ISODate("2020-01-01T00:00:00Z"), like: /^x/i}

A number without a point is an int32 (an int64 when it does not fit), one with a point or an exponent a double. Keys need no
quotes while they are made of letters, digits, `_`, `$`, `.` and `-`. What `parse` reads, `show` prints in one fixed form, so
that two values are the same text exactly when they are the same BSON, types included.
"""

import base64
import datetime
import json
import math
import re
import uuid

from bson import Binary, Code, DatetimeMS, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.dbref import DBRef

CODEC = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)

_KEY = re.compile(r"[A-Za-z0-9_$.\-\[\]]+")
_NUMBER = re.compile(r"-?\d+(\.\d*)?([eE][+-]?\d+)?")
_WORD = re.compile(r"[A-Za-z_]+")
_REGEX = re.compile(r"/((?:[^/\\\n]|\\.)+)/([a-z]*)")
_PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.]*\Z")
_FLAGS = {"i": re.I, "m": re.M, "s": re.S, "x": re.X, "u": re.U, "l": re.L}


class NotationError(ValueError):
    """The text is not valid; the message has the position."""


class Reader:
    """Parses a text from left to right."""

    def __init__(self, text, variables=None):
        self.text = text
        self.at = 0
        self.variables = variables or {}

    def fail(self, what):
        raise NotationError(f"{what} at «{self.text[self.at:self.at + 30]}» in «{self.text}»")

    def space(self):
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def peek(self):
        self.space()
        return self.text[self.at] if self.at < len(self.text) else ""

    def eat(self, char):
        if self.peek() != char:
            self.fail(f"expected {char!r}")
        self.at += 1

    def take(self, pattern, what):
        self.space()
        found = pattern.match(self.text, self.at)
        if not found:
            self.fail(f"expected {what}")
        self.at = found.end()
        return found

    def end(self):
        return self.peek() == ""

    def key(self):
        if self.peek() in "\"'":
            return self.string()
        return self.take(_KEY, "a key").group()

    def string(self):
        self.space()
        quote = self.text[self.at]
        end = self.at + 1
        while end < len(self.text) and self.text[end] != quote:
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            self.fail("a string without an end")
        inner = self.text[self.at + 1 : end]
        if quote == "'":
            inner = inner.replace("\\'", "'").replace('"', '\\"')
        self.at = end + 1
        return json.loads('"' + inner + '"')

    def value(self):
        char = self.peek()
        if char == "{":
            return self.document()
        if char == "[":
            return self.array()
        if char and char in "\"'":
            return self.string()
        if char == "/":
            found = self.take(_REGEX, "a regular expression")
            flags = 0
            for letter in found.group(2):
                flags |= _FLAGS[letter]
            return Regex(found.group(1).replace("\\/", "/"), flags)
        if self.text.startswith("-Infinity", self.at):
            self.at += len("-Infinity")
            return -math.inf
        if char and (char.isdigit() or char == "-"):
            return self.number()
        return self.word()

    def number(self):
        found = self.take(_NUMBER, "a number")
        if found.group(1) is not None or found.group(2):
            return float(found.group())
        value = int(found.group())
        return value if -(2**31) <= value < 2**31 else Int64(value)

    def word(self):
        name = self.take(_WORD, "a value").group()
        constants = {"true": True, "false": False, "null": None, "NaN": math.nan, "Infinity": math.inf}
        if name in constants:
            return constants[name]
        if name in self.variables:
            return self.variables[name]
        arguments = []
        if self.peek() == "(":
            self.eat("(")
            while self.peek() != ")":
                arguments.append(self.value())
                if self.peek() == ",":
                    self.eat(",")
            self.eat(")")
        return self.build(name, arguments)

    def build(self, name, arguments):
        match name, arguments:
            case "MinKey", []:
                return MinKey()
            case "MaxKey", []:
                return MaxKey()
            case "NumberInt", [number]:
                return int(number)
            case "NumberLong", [number]:
                return Int64(int(number))
            case "NumberDecimal", [text]:
                return Decimal128(str(text))
            case "ObjectId", [text]:
                return ObjectId(text)
            case "ISODate", [text]:
                moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
                delta = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
                return DatetimeMS(delta // datetime.timedelta(milliseconds=1))
            case "DateMS", [number]:
                return DatetimeMS(int(number))
            case "Timestamp", [seconds, ordinal]:
                return Timestamp(seconds, ordinal)
            case "BinData", [subtype, text]:
                return Binary(base64.b64decode(text), subtype)
            case "UUID", [text]:
                return Binary.from_uuid(uuid.UUID(text))
            case "Code", [text]:
                return Code(text)
            case "DBRef", [collection, identity]:
                return DBRef(collection, identity)
            case "Repeat", [text, count]:
                return text * count
            case "Range", [first, last]:
                return list(range(first, last))
            case "Nested", [depth]:
                inner = {"end": 1}
                for _ in range(depth):
                    inner = {"a": inner}
                return inner
        self.fail(f"unknown word {name}")

    def document(self):
        self.eat("{")
        out = {}
        while self.peek() != "}":
            key = self.key()
            self.eat(":")
            out[key] = self.value()
            if self.peek() == ",":
                self.eat(",")
            elif self.peek() != "}":
                self.fail("expected , or }")
        self.eat("}")
        return out

    def array(self):
        self.eat("[")
        out = []
        while self.peek() != "]":
            out.append(self.value())
            if self.peek() == ",":
                self.eat(",")
            elif self.peek() != "]":
                self.fail("expected , or ]")
        self.eat("]")
        return out


def parse(text, variables=None):
    """Parses a whole text and returns its value."""
    reader = Reader(text, variables)
    value = reader.value()
    if not reader.end():
        reader.fail("something is left over")
    return value


def show(value):
    """Returns the canonical text of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Int64):
        return f"NumberLong({int(value)})"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        return repr(value)
    if isinstance(value, Code):
        return f"Code({json.dumps(str(value), ensure_ascii=False)})"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{show_key(k)}: {show(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(show(v) for v in value) + "]"
    if isinstance(value, ObjectId):
        return f'ObjectId("{value}")'
    if isinstance(value, DatetimeMS):
        return show_date(int(value))
    if isinstance(value, datetime.datetime):
        return show_date(int(DatetimeMS(value)))
    if isinstance(value, Decimal128):
        return f'NumberDecimal("{value}")'
    if isinstance(value, Timestamp):
        return f"Timestamp({value.time}, {value.inc})"
    if isinstance(value, Regex):
        return f"/{value.pattern}/{show_flags(value.flags)}"
    if isinstance(value, re.Pattern):
        return f"/{value.pattern}/{show_flags(value.flags & ~re.U)}"
    if isinstance(value, (bytes, Binary)):
        subtype = getattr(value, "subtype", 0)
        return f'BinData({subtype}, "{base64.b64encode(bytes(value)).decode()}")'
    if isinstance(value, uuid.UUID):
        return f'UUID("{value}")'
    if isinstance(value, MinKey):
        return "MinKey"
    if isinstance(value, MaxKey):
        return "MaxKey"
    if isinstance(value, DBRef):
        return show(dict(value.as_doc()))
    raise NotationError(f"cannot print {type(value)}")


def show_key(key):
    return key if _PLAIN_KEY.match(key) else json.dumps(key, ensure_ascii=False)


def show_flags(flags):
    return "".join(letter for letter, bit in _FLAGS.items() if flags & bit)


def show_date(milliseconds):
    try:
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
        moment = epoch + datetime.timedelta(milliseconds=milliseconds)
        text = moment.strftime("%Y-%m-%dT%H:%M:%S")
        if milliseconds % 1000:
            text += f".{milliseconds % 1000:03}"
        return f'ISODate("{text}Z")'
    except OverflowError:
        return f"DateMS({milliseconds})"
