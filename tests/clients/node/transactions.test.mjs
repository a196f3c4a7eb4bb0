// Transactions through the official Node driver: the transfers of the seed documents, a conflict, and the errors that the driver gets.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { MongoClient } from "mongodb";

const client = new MongoClient(process.env.MONGODB_URI, { serverSelectionTimeoutMS: 5000 });
const database = client.db("node_transactions");
const accounts = database.collection("accounts");
const transfers = database.collection("transfers");

before(() => client.connect());
beforeEach(() => database.dropDatabase());
after(async () => {
  await database.dropDatabase();
  await client.close();
});

const balances = async () =>
  Object.fromEntries((await accounts.find().sort({ _id: 1 }).toArray()).map(({ _id, balance }) => [_id, balance]));

test("Bob pays Joe 7", async () => {
  await accounts.insertMany([{ _id: "Bob", balance: 10 }, { _id: "Joe", balance: 2 }]);
  await client.withSession(async (session) => {
    session.startTransaction();
    await accounts.updateOne({ _id: "Bob" }, { $inc: { balance: -7 } }, { session });
    await accounts.updateOne({ _id: "Joe" }, { $inc: { balance: 7 } }, { session });
    assert.deepEqual(await balances(), { Bob: 10, Joe: 2 });
    assert.equal((await accounts.findOne({ _id: "Bob" }, { session })).balance, 3);
    await session.commitTransaction();
  });
  assert.deepEqual(await balances(), { Bob: 3, Joe: 9 });
});

test("a transfer changes both accounts and its own document, or nothing", async () => {
  await accounts.insertMany([{ _id: "A", balance: 1000 }, { _id: "B", balance: 1000 }]);
  const transfer = (value) =>
    client.withSession((session) =>
      session.withTransaction(async () => {
        const { insertedId } = await transfers.insertOne({ from: "A", to: "B", value, state: "done" }, { session });
        await accounts.updateOne({ _id: "B" }, { $inc: { balance: value } }, { session });
        const taken = await accounts.updateOne({ _id: "A", balance: { $gte: value } }, { $inc: { balance: -value } }, { session });
        if (taken.matchedCount === 0) throw new RangeError("A has too little");
        return insertedId;
      }),
    );
  const number = await transfer(100);
  await assert.rejects(transfer(1000), RangeError);
  assert.deepEqual(await balances(), { A: 900, B: 1100 });
  assert.deepEqual((await transfers.find().toArray()).map(({ _id }) => _id), [number]);
});

test("withTransaction runs again after a conflict", async () => {
  await accounts.insertOne({ _id: "hot", balance: 0 });
  let attempts = 0;
  const deposits = async () => {
    for (let count = 0; count < 20; count++) {
      await client.withSession((session) =>
        session.withTransaction(async () => {
          attempts++;
          const { balance } = await accounts.findOne({ _id: "hot" }, { session });
          await accounts.updateOne({ _id: "hot" }, { $set: { balance: balance + 1 } }, { session });
        }),
      );
    }
  };
  await Promise.all([deposits(), deposits(), deposits(), deposits()]);
  assert.deepEqual(await balances(), { hot: 80 });
  assert.ok(attempts > 80, "nobody met anybody: the test shows nothing");
});

test("the second writer of a document gets a conflict at once", async () => {
  await accounts.insertOne({ _id: 1, balance: 0 });
  await client.withSession((first) =>
    client.withSession(async (second) => {
      first.startTransaction();
      second.startTransaction();
      await accounts.updateOne({ _id: 1 }, { $inc: { balance: 1 } }, { session: first });
      const refused = await accounts.updateOne({ _id: 1 }, { $inc: { balance: 1 } }, { session: second }).catch((error) => error);
      assert.equal(refused.code, 112);
      assert.ok(refused.hasErrorLabel("TransientTransactionError"));
      await second.abortTransaction();
      await first.commitTransaction();
      await first.commitTransaction();
    }),
  );
  assert.deepEqual(await balances(), { 1: 1 });
});

test("a snapshot session reads one snapshot", async () => {
  await accounts.insertMany([{ _id: 1, balance: 1 }, { _id: 2, balance: 1 }]);
  await client.withSession({ snapshot: true }, async (session) => {
    assert.equal((await accounts.find({}, { session }).toArray()).length, 2);
    await accounts.updateMany({}, { $set: { balance: 5 } });
    const [{ sum }] = await accounts.aggregate([{ $group: { _id: null, sum: { $sum: "$balance" } } }], { session }).toArray();
    assert.equal(sum, 2);
  });
});
