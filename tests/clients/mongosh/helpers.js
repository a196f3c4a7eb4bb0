// Frequent statements of mongosh: helpers, printing, errors, iteration.

const assert = require("assert");
db = db.getSiblingDB("mongosh_helpers");
db.dropDatabase();

// Returns the error of a statement. (The shell awaits statements by itself, but not inside `assert.throws`.)
const refusal = (statement) => {
  try {
    statement();
  } catch (error) {
    return error;
  }
  return null;
};

// show dbs, show collections, use, stats.
db.first.insertOne({ _id: 1 });
db.createCollection("second");
assert.deepEqual(db.getCollectionNames().sort(), ["first", "second"]);
assert.ok(db.getMongo().getDBNames().includes("mongosh_helpers"));
assert.equal(db.stats().collections, 2);
assert.equal(db.first.stats().count, 1);
assert.ok(db.version().match(/^\d+\.\d+\.\d+/));
assert.equal(db.adminCommand({ ping: 1 }).ok, 1);
assert.equal(db.hello().isWritablePrimary, true);
assert.ok(db.serverStatus().uptime >= 0);
assert.ok(db.hostInfo().ok);
assert.ok(Array.isArray(db.adminCommand({ currentOp: 1 }).inprog));
assert.equal(db.first.validate().valid, true);

// The replica set, maintenance, and statistics of a collection.
assert.equal(rs.status().members[0].stateStr, "PRIMARY");
assert.equal(rs.conf().members[0].host, rs.status().members[0].name);
assert.ok(db.first.latencyStats()[0].latencyStats.writes.ops > 0);
assert.deepEqual(db.first.aggregate([{ $indexStats: {} }]).toArray().map((index) => index.name), ["_id_"]);
assert.deepEqual(db.first.getPlanCache().list(), []);
assert.equal(db.first.getPlanCache().clear().ok, 1);
assert.ok(db.currentOp(true).inprog.some((operation) => operation.type === "op" && !operation.active));
assert.equal(refusal(() => db.fsyncLock()).codeName, "CommandNotSupported");
assert.equal(db.adminCommand({ fsync: 1 }).ok, 1);

// Bulk API.
const bulk = db.first.initializeUnorderedBulkOp();
bulk.insert({ _id: 2, a: 1 });
bulk.find({ _id: 2 }).updateOne({ $inc: { a: 1 } });
bulk.find({ _id: 3 }).upsert().replaceOne({ b: 1 });
bulk.find({ _id: 1 }).deleteOne();
const done = bulk.execute();
assert.deepEqual([done.insertedCount, done.matchedCount, done.upsertedCount, done.deletedCount], [1, 1, 1, 1]);
assert.deepEqual(db.first.find().sort({ _id: 1 }).toArray(), [{ _id: 2, a: 2 }, { _id: 3, b: 1 }]);

// Cursors: iteration over batches, count, explain, hint, the helpers of collections.
db.many.insertMany(Array.from({ length: 500 }, (_, i) => ({ _id: i, m: i % 10 })));
let seen = 0;
db.many.find().batchSize(13).forEach(() => seen++);
assert.equal(seen, 500);
assert.equal(db.many.find({ m: 3 }).count(), 50);
assert.equal(db.many.countDocuments({ m: { $lt: 2 } }), 100);
assert.equal(db.many.estimatedDocumentCount(), 500);
db.many.createIndex({ m: 1 });
assert.match(JSON.stringify(db.many.explain().find({ m: 3 }).finish().queryPlanner.winningPlan), /IXSCAN/);
assert.equal(db.many.find({ m: 3 }).hint({ m: 1 }).limit(5).toArray().length, 5);
assert.deepEqual(db.many.distinct("m").length, 10);
assert.deepEqual(db.many.aggregate([{ $match: { m: 1 } }, { $count: "n" }]).toArray(), [{ n: 50 }]);
assert.equal(db.many.find().sort({ _id: -1 }).limit(1).next()._id, 499);
assert.equal(db.many.findOne({ _id: 499 }).m, 9);
assert.deepEqual(db.many.getIndexes().map((index) => index.name), ["_id_", "m_1"]);
db.many.dropIndex("m_1");
assert.equal(db.many.renameCollection("lots").ok, 1);
assert.equal(db.lots.drop(), true);
assert.deepEqual(db.getCollectionNames().sort(), ["first", "second"]);

// Errors as the shell shows them.
const duplicate = refusal(() => db.first.insertOne({ _id: 2 }));
assert.equal(duplicate.code, 11000);
assert.match(duplicate.message, /E11000 duplicate key error collection: mongosh_helpers\.first index: _id_ dup key: \{ _id: 2 \}/);
const unknown = refusal(() => db.runCommand({ nothingLikeIt: 1 }));
assert.equal(unknown?.codeName ?? db.runCommand({ nothingLikeIt: 1 }).codeName, "CommandNotFound");
assert.equal(refusal(() => db.first.find({ a: { $nope: 1 } }).toArray()).codeName, "BadValue");

// Types as the shell writes them.
db.types.insertOne({ _id: 1, l: NumberLong("9007199254740993"), d: NumberDecimal("1.10"), i: NumberInt(5), u: UUID("00112233-4455-6677-8899-aabbccddeeff"), t: Timestamp(1, 2), r: /x/i });
const types = db.types.findOne();
assert.equal(types.l.toString(), "9007199254740993");
assert.equal(types.d.toString(), "1.10");
assert.equal(types.u.toString(), "00112233-4455-6677-8899-aabbccddeeff");
assert.equal(db.types.countDocuments({ i: { $type: "int" }, t: { $type: "timestamp" }, r: { $type: "regex" } }), 1);

db.dropDatabase();
print("ok helpers");
