"""The JSON schemas of the patterns' pages, against documents of a server.

    MONGODB_URI=mongodb://127.0.0.1:27017 python schemas.py PAGE COLLECTION..

The schemas of a page belong to the collections in this order; each is the database and the collection, such as shop.jobs, and must have documents.
"""

import json
import os
import pathlib
import re
import sys

import pymongo
from bson import json_util
from jsonschema import Draft202012Validator

PAGES = pathlib.Path(__file__).resolve().parents[3] / "docs/patterns"


def schemas(page):
    """Returns the validators of a page."""
    blocks = re.findall(r"^```json\n(.*?)^```$", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)
    schemas = [json.loads(block) for block in blocks]
    for schema in schemas:
        Draft202012Validator.check_schema(schema)
    return [Draft202012Validator(schema) for schema in schemas]


def violations(validator, document):
    """Returns what is wrong with a document of a collection."""
    shown = json.loads(json_util.dumps(document, json_options=json_util.RELAXED_JSON_OPTIONS))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(shown)]


def main(page, *collections):
    client = pymongo.MongoClient(os.environ["MONGODB_URI"])
    for validator, collection in zip(schemas(page), collections, strict=True):
        database, _, name = collection.partition(".")
        documents = list(client[database][name].find())
        assert documents, f"{collection} is empty"
        for document in documents:
            wrong = violations(validator, document)
            assert not wrong, f"{document} of {collection}: {wrong}"


if __name__ == "__main__":
    main(*sys.argv[1:])
