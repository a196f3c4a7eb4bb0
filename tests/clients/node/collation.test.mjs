// Collations through the official Node driver and through Mongoose.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { MongoClient } from "mongodb";
import mongoose from "mongoose";

const client = new MongoClient(process.env.MONGODB_URI, { serverSelectionTimeoutMS: 5000 });
const database = client.db("node_collation");
const users = database.collection("users");
const folded = { locale: "en_US", strength: 2 };

before(() => client.connect());
beforeEach(() => database.dropDatabase());
after(async () => {
  await database.dropDatabase();
  await client.close();
});

// Returns the stages of a plan, from the outermost, with the name of the index.
const stages = ({ stage, indexName, inputStage }) => [indexName ? `${stage} ${indexName}` : stage, ...(inputStage ? stages(inputStage) : [])];

// The statements that parse-server sends when it starts, and when somebody signs up.
test("names and addresses of users are unique without regard to capital letters", async () => {
  for (const field of ["username", "email"]) {
    const options = { name: `case_insensitive_${field}`, unique: true, sparse: true, background: true, collation: folded };
    await users.createIndex({ [field]: 1 }, options);
  }
  await users.insertOne({ _id: 1, username: "Bob", email: "Bob@example.org" });
  await assert.rejects(users.insertOne({ _id: 2, username: "bob" }), { code: 11000 });
  await assert.rejects(users.insertOne({ _id: 3, username: "eve", email: "bob@EXAMPLE.org" }), { code: 11000 });
  await users.insertMany([{ _id: 4 }, { _id: 5, username: "Bób" }]);
  const found = users.find({ username: "bob" }, { collation: folded });
  assert.deepEqual((await found.toArray()).map((user) => user._id), [1]);
  const { queryPlanner } = await users.find({ username: "bob" }).collation(folded).explain();
  assert.ok(stages(queryPlanner.winningPlan).includes("IXSCAN case_insensitive_username"), JSON.stringify(queryPlanner));
  const other = await users.find({ username: "bob" }).explain();
  assert.ok(!JSON.stringify(other.queryPlanner.winningPlan).includes("IXSCAN"), JSON.stringify(other.queryPlanner));
  assert.equal(await users.findOne({ username: "bob" }), null);
});

test("an index is listed with its whole collation, beside one with the same key", async () => {
  const names = await users.createIndexes([
    { key: { username: 1 }, name: "german", collation: { locale: "de@collation=phonebook" } },
    { key: { username: 1 }, name: "bytes" },
  ]);
  assert.deepEqual(names, ["german", "bytes"]);
  const [, german, bytes] = await users.indexes();
  assert.deepEqual(german.collation, {
    locale: "de@collation=phonebook",
    caseLevel: false,
    caseFirst: "off",
    strength: 3,
    numericOrdering: false,
    alternate: "non-ignorable",
    maxVariable: "punct",
    normalization: false,
    backwards: false,
    version: "57.1",
  });
  assert.equal(bytes.collation, undefined);
  const clash = users.createIndex({ username: 1 }, { name: "german", collation: { locale: "sv" } });
  await assert.rejects(clash, { code: 86 });
});

test("reads and writes compare strings by their collation", async () => {
  const numbers = { collation: { locale: "en", numericOrdering: true } };
  await users.insertMany(["item10", "item9", "Item9"].map((name, _id) => ({ _id, name })));
  const sorted = await users.find({}, numbers).sort({ name: 1 }).toArray();
  assert.deepEqual(sorted.map((user) => user.name), ["item9", "Item9", "item10"]);
  assert.equal(await users.countDocuments({ name: "ITEM9" }, { collation: folded }), 2);
  assert.equal((await users.distinct("name", {}, { collation: folded })).length, 2);
  const groups = [{ $group: { _id: "$name", n: { $sum: 1 } } }, { $sort: { n: 1 } }, { $project: { _id: 0 } }];
  assert.deepEqual(await users.aggregate(groups, { collation: folded }).toArray(), [{ n: 1 }, { n: 2 }]);
  const raised = await users.updateMany({ name: "ITEM9" }, { $set: { seen: true } }, { collation: folded });
  assert.equal(raised.modifiedCount, 2);
  const taken = await users.findOneAndDelete({ name: "ITEM10" }, { collation: folded });
  assert.equal(taken._id, 0);
  assert.equal((await users.deleteMany({ name: "ITEM9" })).deletedCount, 0);
  assert.equal((await users.deleteMany({ name: "ITEM9" }, { collation: folded })).deletedCount, 2);
});

test("a locale that is not known is refused", async () => {
  await assert.rejects(users.find({}, { collation: { locale: "xx" } }).toArray(), { code: 2 });
});

test("Mongoose gives the collation of a query", async () => {
  const connection = await mongoose.createConnection(process.env.MONGODB_URI, { dbName: "node_collation" }).asPromise();
  const schema = new mongoose.Schema({ username: String });
  schema.index({ username: 1 }, { unique: true, collation: folded });
  const User = connection.model("User", schema);
  await User.init();
  await User.create({ username: "Bob" });
  await assert.rejects(User.create({ username: "BOB" }), { code: 11000 });
  assert.equal((await User.findOne({ username: "bob" }).collation(folded)).username, "Bob");
  await connection.close();
});
