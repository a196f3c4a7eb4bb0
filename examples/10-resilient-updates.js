// "How to write resilient applications": which operations may be sent twice, and how an increment becomes one of them.
//
// The document shows Python of sorts; the statements here are the same operations in the shell. A lost reply is played by
// sending an operation again.

const assert = require("assert");
db = db.getSiblingDB("example_resilient_updates");
db.dropDatabase();

// What a statement is refused with. (The shell makes statements wait by itself, but not inside `assert.throws`.)
const refusal = (statement) => {
  try {
    statement();
  } catch (error) {
    return error;
  }
  return null;
};
const collection = db.days;
const id = "2016-06-28";

// The plain increment creates the day's document, and counts twice when it is sent twice: it must not be retried.
let result = collection.updateOne({'_id': '2016-06-28'}, {'$inc': {'counter': 1}}, { upsert: true });
assert.deepEqual([result.matchedCount, result.insertedId], [0, id]);
result = collection.updateOne({'_id': '2016-06-28'}, {'$inc': {'counter': 1}}, { upsert: true });
assert.deepEqual([result.matchedCount, result.modifiedCount, result.upsertedCount], [1, 1, 0]);
assert.deepEqual(collection.findOne(), { _id: id, counter: 2 });

// A query may be repeated.
assert.deepEqual(collection.findOne({ _id: id }), collection.findOne({ _id: id }));

// An insert with an _id of the client's own: the second attempt's duplicate key error says that the first one worked.
const doc = { _id: ObjectId(), text: "once" };
db.events.insertOne(doc);
assert.equal(refusal(() => db.events.insertOne(doc)).code, 11000);
assert.equal(db.events.countDocuments({}), 1);

// Deletes by a unique key, and deletes of everything that matches.
db.events.insertMany([{ key: "unique" }, { group: 1 }, { group: 1 }]);
for (const deleted of [1, 0]) assert.equal(db.events.deleteOne({'key': 'unique'}).deletedCount, deleted);
for (const deleted of [2, 0]) assert.equal(db.events.deleteMany({ group: 1 }).deletedCount, deleted);

// A $set may be repeated.
for (const modified of [1, 0]) {
  result = collection.updateOne({ '_id': '2016-06-28'}, {'$set':{'sunny': true}}, { upsert: true });
  assert.deepEqual([result.matchedCount, result.modifiedCount], [1, modified]);
}

// The increment in two steps that may each be repeated. Step one: a token into `pending`.
const counter = collection.findOne().counter;
const oid = ObjectId();
for (const modified of [1, 0]) {
  result = collection.updateOne({ '_id': '2016-06-28'}, {'$addToSet': {'pending': oid}}, { upsert: true });
  assert.deepEqual([result.matchedCount, result.modifiedCount], [1, modified]);
}
assert.deepEqual(collection.findOne(), { _id: id, counter, sunny: true, pending: [oid] });
// Step two: the token out and the counter up, in one atomic update that matches while the token is there.
for (const matched of [1, 0]) {
  result = collection.updateOne(
    {'_id': '2016-06-28', 'pending': oid},
    {'$pull': {'pending': oid}, '$inc': {'counter': 1}},
    { upsert: false },
  );
  assert.deepEqual([result.matchedCount, result.modifiedCount], [matched, matched]);
}
assert.deepEqual(collection.findOne(), { _id: id, counter: counter + 1, sunny: true, pending: [] });

// The nightly clean-up: tokens whose second step never came are counted all at once.
collection.updateOne({ _id: id }, { $push: { pending: { $each: [ObjectId(), ObjectId()] } } });
collection.insertMany([
  { _id: "2016-06-29", counter: 10, pending: [ObjectId()] },
  { _id: "2016-06-30", counter: 20, pending: [] },
  { _id: "2016-07-01", counter: 30 },
]);
const pipeline = [{
  '$match': {'pending.0': {'$exists': true}}
}, {
  '$project': {
    'counter': {
      '$add': [
        '$counter', {'$size': '$pending'}
      ]
    }
  }
}];
const found = collection.aggregate(pipeline).toArray();
assert.deepEqual(found.sort((a, b) => (a._id < b._id ? -1 : 1)), [
  { _id: id, counter: counter + 3 },
  { _id: "2016-06-29", counter: 11 },
]);
for (const attempt of [1, 2]) {
  for (const doc of found) {
    collection.updateOne(
      {'_id': doc._id},
      {'$set': {'counter': doc.counter}, '$unset': {'pending': true}},
    );
  }
}
assert.deepEqual(collection.find({}, { counter: 1, pending: 1 }).sort({ _id: 1 }).toArray(), [
  { _id: id, counter: counter + 3 },
  { _id: "2016-06-29", counter: 11 },
  { _id: "2016-06-30", counter: 20, pending: [] },
  { _id: "2016-07-01", counter: 30 },
]);
assert.deepEqual(collection.aggregate(pipeline).toArray(), []);

db.dropDatabase();
print("ok 10-resilient-updates");
