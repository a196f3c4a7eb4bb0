// Change streams through the official Node driver and through Mongoose.

import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, beforeEach, test } from "node:test";
import { MongoClient } from "mongodb";
import mongoose from "mongoose";

const client = new MongoClient(process.env.MONGODB_URI, { serverSelectionTimeoutMS: 5000 });
const database = client.db("node_streams");
const things = database.collection("things");

before(() => client.connect());
beforeEach(() => database.dropDatabase());
after(async () => {
  await database.dropDatabase();
  await client.close();
});

// A stream of this driver is open once its first batch was asked for.
const opened = async (stream) => {
  assert.equal(await stream.tryNext(), null);
  return stream;
};

test("a stream shows changes, and another one resumes after its token", async () => {
  const stream = await opened(things.watch([{ $match: { operationType: { $in: ["insert", "update"] } } }]));
  await things.insertOne({ _id: 1, a: { b: 1 } });
  await things.updateOne({ _id: 1 }, { $set: { "a.b": 2 } });
  await things.deleteOne({ _id: 1 });
  const insert = await stream.next();
  const update = await stream.next();
  assert.deepEqual([insert.operationType, insert.fullDocument], ["insert", { _id: 1, a: { b: 1 } }]);
  assert.deepEqual(update.updateDescription.updatedFields, { "a.b": 2 });
  await stream.close();
  const resumed = things.watch([], { resumeAfter: insert._id });
  assert.deepEqual([(await resumed.next()).operationType, (await resumed.next()).operationType], ["update", "delete"]);
  await resumed.close();
});

test("an event emitter gets the events of a transaction", async () => {
  const stream = client.watch();
  const events = [];
  const changes = new Promise((resolve) => stream.on("change", (event) => events.push(event) === 2 && resolve()));
  // The server has answered the first request.
  await once(stream, "resumeTokenChanged");
  await client.withSession((session) =>
    session.withTransaction(async () => {
      await things.insertOne({ _id: 1 }, { session });
      await database.collection("others").insertOne({ _id: 2 }, { session });
    }),
  );
  await changes;
  assert.deepEqual(events.map((event) => event.documentKey._id), [1, 2]);
  assert.ok(events[0].txnNumber.toString() === events[1].txnNumber.toString() && events[0].lsid);
  await stream.close();
});

test("a drop invalidates the stream of a collection", async () => {
  await things.insertOne({ _id: 1 });
  const stream = await opened(things.watch());
  await things.drop();
  const kinds = [];
  for await (const event of stream) {
    kinds.push(event.operationType);
    if (event.operationType === "invalidate") break;
  }
  assert.deepEqual(kinds, ["drop", "invalidate"]);
});

test("Mongoose watches a model", async () => {
  const connection = await mongoose.createConnection(process.env.MONGODB_URI, { dbName: "node_streams" }).asPromise();
  const Thing = connection.model("Thing", new mongoose.Schema({ name: String }));
  await Thing.createCollection();
  const stream = Thing.watch([], { fullDocument: "updateLookup" });
  const first = new Promise((resolve) => stream.once("change", resolve));
  await new Promise((resolve) => stream.once("ready", resolve));
  await once(stream.driverChangeStream, "resumeTokenChanged");
  await Thing.create({ name: "bolt" });
  assert.equal((await first).fullDocument.name, "bolt");
  await stream.close();
  await connection.close();
});
