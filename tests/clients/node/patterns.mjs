// Steps of four patterns by the Node driver, beside the same steps by a program in another language: repeated, in transactions, and aborted.
//
//     MONGODB_URI=mongodb://127.0.0.1:27017 node patterns.mjs

import assert from "node:assert/strict";
import { MongoClient, ObjectId } from "mongodb";

const name = "node";
const client = new MongoClient(process.env.MONGODB_URI);
const site = client.db("site");

/** The transaction is to be aborted. */
class Rollback extends Error {}

const transaction = (steps, commits = true) =>
  client.withSession((session) =>
    session.withTransaction(async () => {
      await site.collection("log").insertOne({ by: name }, { session });
      await steps(session);
      if (!commits) throw new Rollback();
    }),
  );

// Exactly once: each view is sent twice.
const view = async (token, page, more, session) => {
  const change = { document: { _id: page }, token, update: { $inc: { views: 1 } }, ...more };
  return (await site.command({ handfastApplyOnce: "pages", ...change }, { session })).applied;
};
const upsert = { upsert: true };
for (let number = 0; number < 10; number++) {
  const token = new ObjectId();
  assert.equal(await view(token, "shared", upsert), true);
  assert.equal(await view(token, "shared", upsert), false);
}
await assert.rejects(view(new ObjectId(), name), { code: 4 });
await view(new ObjectId(), name, upsert);
const viewed = new ObjectId();
const viewIn = (session) => view(viewed, name, {}, session);
await assert.rejects(transaction(viewIn, false), Rollback);
await transaction(viewIn);
// As after a commit without an answer.
await assert.rejects(transaction(viewIn), { code: 256 });
await assert.rejects(view(new ObjectId(), name, { guard: { views: 0 } }), { code: 121 });
assert.equal((await site.collection("pages").findOne({ _id: name })).views, 2);

// Two-phase commit: ten transfers to an account that both programs use, and one of too much.
const run = (command, values) => site.command({ [`handfast${command}TwoPhase`]: "transfers", application: name, ...values });
const begin = async (number, value, session) => {
  const _id = `${name} ${number}`;
  const plan = { _id, source: name, destination: "shop", value };
  await site.command({ handfastBeginTwoPhase: "transfers", transaction: plan }, { session });
  return { transaction: { _id } };
};
const accounts = site.collection("accounts");
await accounts.updateOne({ _id: "shop" }, { $setOnInsert: { balance: 0 } }, { upsert: true });
await accounts.insertOne({ _id: name, balance: 100 });
for (let number = 0; number < 10; number++) {
  const named = await begin(number, 5);
  assert.equal((await run("Advance", named)).state, "done");
  assert.equal((await run("Advance", named)).state, "done");
}
const refused = await run("Advance", await begin(10, 51)).catch((error) => error);
assert.deepEqual([refused.code, refused.errInfo.state], [121, "canceled"]);
assert.equal((await run("Cancel", { ...(await begin(11, 1)), reason: "a test" })).state, "canceled");
const beginIn = (session) => begin(12, 10, session);
const named = { transaction: { _id: `${name} 12` } };
await assert.rejects(transaction(beginIn, false), Rollback);
await assert.rejects(run("Advance", named), { code: 4 });
await transaction(beginIn);
await assert.rejects(transaction(beginIn), { code: 256 });
assert.equal((await run("Advance", named)).state, "done");
assert.equal(Number((await accounts.findOne({ _id: name })).balance), 40);

// Sync flag: a user is renamed, and the comments follow.
const rename = async (token, newName, session) => {
  const change = { document: { _id: name }, token, update: { $set: { name: newName } } };
  return (await site.command({ handfastSetSynced: "users", ...change }, { session })).synced;
};
const userInitial = { $substrCP: ["$name", 0, 1] };
const link = { collection: "comments", key: "user", fields: { name: "userName" }, computed: { userInitial } };
await site.command({ handfastOpenSyncFlag: "users", links: [link] });
await site.collection("users").insertOne({ _id: name, name: "John" });
for (let number = 0; number < 3; number++) {
  const document = { _id: `${name} ${number}`, user: name };
  await site.command({ handfastInsertSynced: "users", collection: "comments", document });
}
const renamed = new ObjectId();
const renameIn = (session) => rename(renamed, "Mary", session);
await assert.rejects(transaction(renameIn, false), Rollback);
assert.equal((await site.collection("users").findOne({ _id: name })).name, "John");
await transaction(renameIn);
await assert.rejects(transaction(renameIn), { code: 256 });
assert.equal(await rename(renamed, "Mary"), true);
const comments = await site.collection("comments").find({ user: name }).toArray();
assert.deepEqual(comments.map((comment) => [comment.userName, comment.userInitial]), Array(3).fill(["Mary", "M"]));

// Versioned tree: five versions of a tree that both programs write, each sent twice.
const write = (token, number) => {
  const nodes = [{ item: name, content: { number } }];
  return site.command({ handfastWriteTree: "items", tree: "catalogue", token, nodes });
};
const read = (more, session) => site.command({ handfastReadTree: "items", tree: "catalogue", ...more }, { session });
for (let number = 0; number < 5; number++) {
  const token = new ObjectId();
  const [first, second] = [await write(token, number), await write(token, number)];
  assert.deepEqual([first.written, second.written, second.version], [true, false, first.version]);
  const { nodes } = await read({ version: first.version, items: [name] });
  assert.deepEqual(nodes, [{ item: name, version: first.version, content: { number } }]);
}
await client.withSession((session) =>
  session.withTransaction(async () => {
    const before = (await read({}, session)).version;
    await write(new ObjectId(), 5);
    assert.equal((await read({}, session)).version, before);
  }),
);

assert.equal(await site.collection("log").countDocuments({ by: name }), 3);
await client.close();
