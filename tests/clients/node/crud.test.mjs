// The official Node driver against the server that MONGODB_URI names: `node --test tests/clients/node`.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { Decimal128, Long, MongoBulkWriteError, MongoClient, MongoServerError, ObjectId } from "mongodb";

const uri = process.env.MONGODB_URI;
const client = new MongoClient(uri, { serverSelectionTimeoutMS: 5000 });
const database = client.db("node_tests");
const c = database.collection("c");

before(() => client.connect());
beforeEach(() => database.dropDatabase());
after(async () => {
  await database.dropDatabase();
  await client.close();
});

test("single writes report what they did", async () => {
  const inserted = await c.insertOne({ a: 1 });
  assert.ok(inserted.insertedId instanceof ObjectId);
  assert.equal((await c.insertMany([{ _id: 1 }, { _id: 2 }])).insertedCount, 2);
  const updated = await c.updateMany({}, { $set: { a: 1 } });
  assert.deepEqual([updated.matchedCount, updated.modifiedCount, updated.upsertedCount], [3, 2, 0]);
  const upserted = await c.updateOne({ _id: 7 }, { $inc: { n: 1 } }, { upsert: true });
  assert.deepEqual([upserted.matchedCount, upserted.upsertedId], [0, 7]);
  assert.deepEqual(await c.findOneAndUpdate({ _id: 7 }, { $inc: { n: 1 } }, { returnDocument: "after" }), { _id: 7, n: 2 });
  assert.deepEqual(await c.findOneAndReplace({ _id: 7 }, { x: 1 }), { _id: 7, n: 2 });
  assert.deepEqual(await c.findOneAndDelete({ _id: 7 }), { _id: 7, x: 1 });
  assert.equal((await c.deleteMany({})).deletedCount, 3);
});

test("values keep their types", async () => {
  const document = {
    _id: new ObjectId(),
    long: Long.fromString("9223372036854775807"),
    decimal: Decimal128.fromString("1.10"),
    date: new Date(0),
    buffer: Buffer.from([1, 2, 3]),
    regex: /^a.*z$/i,
    nested: { array: [1, "two", null, { three: [3] }] },
  };
  await c.insertOne(document);
  const found = await c.findOne({ _id: document._id }, { promoteLongs: false });
  assert.equal(found.long.toString(), "9223372036854775807");
  assert.equal(found.decimal.toString(), "1.10");
  assert.equal(found.date.getTime(), 0);
  assert.deepEqual([...found.buffer.buffer], [1, 2, 3]);
  assert.equal(found.regex.source, "^a.*z$");
  assert.deepEqual(JSON.parse(JSON.stringify(found.nested)), document.nested);
});

test("a bulk write tells which writes failed", async () => {
  await assert.rejects(
    c.bulkWrite(
      [
        { insertOne: { document: { _id: 1 } } },
        { insertOne: { document: { _id: 1 } } },
        { updateOne: { filter: { _id: 1 }, update: { $set: { a: 1 } } } },
        { replaceOne: { filter: { _id: 2 }, replacement: { b: 1 }, upsert: true } },
        { deleteOne: { filter: { _id: 99 } } },
      ],
      { ordered: false },
    ),
    (error) => {
      assert.ok(error instanceof MongoBulkWriteError);
      assert.equal(error.code, 11000);
      assert.deepEqual(error.writeErrors.map((one) => [one.index, one.code]), [[1, 11000]]);
      assert.deepEqual([error.result.insertedCount, error.result.modifiedCount, error.result.upsertedCount], [1, 1, 1]);
      return true;
    },
  );
});

test("the client-level bulkWrite works or is refused by name", async () => {
  await c.insertOne({ _id: 1 });
  const hello = await database.admin().command({ hello: 1 });
  if (hello.maxWireVersion < 25) return;
  const result = await client.bulkWrite([
    { name: "insertOne", namespace: "node_tests.c", document: { _id: 2 } },
    { name: "updateOne", namespace: "node_tests.c", filter: { _id: 1 }, update: { $set: { a: 1 } } },
  ]);
  assert.deepEqual([result.insertedCount, result.modifiedCount], [1, 1]);
});

test("cursors fetch batch after batch and close early", async () => {
  await c.insertMany(Array.from({ length: 300 }, (_, i) => ({ _id: i })));
  const ids = [];
  for await (const document of c.find({}, { batchSize: 7 }).sort({ _id: -1 })) ids.push(document._id);
  assert.deepEqual(ids, Array.from({ length: 300 }, (_, i) => 299 - i));
  const cursor = c.find({}, { batchSize: 2 });
  await cursor.next();
  await cursor.close();
  assert.equal((await c.find().skip(290).toArray()).length, 10);
  assert.equal((await c.aggregate([{ $group: { _id: null, sum: { $sum: "$_id" } } }]).toArray())[0].sum, 44850);
});

test("indexes and their errors", async () => {
  assert.equal(await c.createIndex({ email: 1 }, { unique: true, partialFilterExpression: { live: true } }), "email_1");
  await c.insertMany([{ _id: 1, email: "x" }, { _id: 2, email: "x", live: true }]);
  await assert.rejects(c.insertOne({ _id: 3, email: "x", live: true }), (error) => {
    assert.ok(error instanceof MongoServerError);
    assert.equal(error.code, 11000);
    assert.deepEqual([error.keyPattern, error.keyValue], [{ email: 1 }, { email: "x" }]);
    return true;
  });
  const names = (await c.listIndexes().toArray()).map((index) => index.name);
  assert.deepEqual(names, ["_id_", "email_1"]);
  await c.dropIndex("email_1");
  await assert.rejects(c.dropIndex("email_1"), (error) => error.code === 27 && error.codeName === "IndexNotFound");
});

test("a session is accepted, and ends", async () => {
  const session = client.startSession();
  await c.insertOne({ _id: 1 }, { session });
  assert.equal(await c.countDocuments({}, { session }), 1);
  await session.endSession();
});

for (const compressor of ["zlib", "snappy"]) {
  test(`messages compressed with ${compressor}`, async () => {
    const compressed = new MongoClient(uri, { compressors: [compressor] });
    try {
      const mine = compressed.db("node_tests").collection("compressed");
      await mine.insertMany(Array.from({ length: 50 }, (_, i) => ({ _id: i, text: "compress me ".repeat(1000) })));
      const all = await mine.find({}, { batchSize: 9 }).toArray();
      assert.equal(all.reduce((sum, document) => sum + document.text.length, 0), 50 * 12000);
    } finally {
      await compressed.close();
    }
  });
}

test("errors carry code and name", async () => {
  await assert.rejects(database.command({ nothingLikeIt: 1 }), (error) => error.code === 59 && error.codeName === "CommandNotFound");
  await assert.rejects(c.find({ a: { $what: 1 } }).toArray(), (error) => error.code === 2 && error.codeName === "BadValue");
  await assert.rejects(c.aggregate([{ $what: 1 }]).toArray(), (error) => error.code === 40324);
});

test("large documents are stored", async () => {
  const big = "x".repeat(15 * 1024 * 1024);
  await c.insertOne({ _id: 1, big });
  assert.equal((await c.findOne({ _id: 1 })).big.length, big.length);
  await assert.rejects(c.insertOne({ _id: 2, big: "x".repeat(16 * 1024 * 1024 + 1) }));
  assert.equal(await c.countDocuments({}), 1);
});
