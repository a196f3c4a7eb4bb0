// Solution 1 of "reliable and scalable transactions across documents": a sync flag.
//
// A user's name is copied into the comments. The flag `syncing` is set in the same atomic update that changes the name, the
// copies are changed one by one, then the flag is taken away. Whoever finds an old flag starts the copying again. The index on
// the flag is sparse: it holds the few documents that have the flag, and is small however many users there are.

const assert = require("assert");
db = db.getSiblingDB("example_sync_flag");
db.dropDatabase();

const userId = 1;
const currentTime = new Date();
db.user.insertMany([{ _id: userId, name: "John" }, { _id: 2, name: "Mary" }]);
db.comment.insertMany([
  { _id: 1, user: userId, userName: "John", text: "first" },
  { _id: 2, user: userId, userName: "John", text: "second" },
  { _id: 3, user: 2, userName: "Mary", text: "third" },
]);

// As printed: db.user.ensureIndex({ syncing: 1 }, { sparse: true }). The shell has called it createIndex since 3.0.
assert.equal(db.user.createIndex({ syncing: 1 }, { sparse: true }), "syncing_1");
assert.equal(db.user.getIndexes().find((index) => index.name === "syncing_1").sparse, true);

// "rest of updates" is the new name. As printed, the two objects stand side by side in one update document; it is one $set.
let result = db.user.update({ _id: userId }, { $set: { syncing: currentTime, name: "Johnny" } });
assert.deepEqual([result.matchedCount, result.modifiedCount], [1, 1]);

// The application changes the first comment, then dies.
assert.equal(db.comment.updateOne({ _id: 1 }, { $set: { userName: "Johnny" } }).modifiedCount, 1);
assert.deepEqual(db.comment.distinct("userName", { user: userId }).sort(), ["John", "Johnny"]);

// The background thread finds the flag through the sparse index, and does the whole process again.
const unfinished = db.user.find({ syncing: { $lt: new Date(currentTime.getTime() + 3600 * 1000) } });
const plan = db.user.find({ syncing: { $lt: new Date() } }).explain();
assert.match(JSON.stringify(plan.queryPlanner.winningPlan), /IXSCAN.*syncing_1/);
const found = unfinished.toArray();
assert.deepEqual(found.map((user) => user._id), [userId]);
for (const user of found) {
  db.comment.updateMany({ user: user._id }, { $set: { userName: user.name } });
}
assert.deepEqual(db.comment.distinct("userName", { user: userId }), ["Johnny"]);

result = db.user.update({ _id: userId }, { $unset: { syncing: 1 } });
assert.deepEqual([result.matchedCount, result.modifiedCount], [1, 1]);
assert.equal(db.user.countDocuments({ syncing: { $exists: true } }), 0);
assert.deepEqual(db.user.findOne({ _id: userId }), { _id: userId, name: "Johnny" });
assert.deepEqual(db.comment.findOne({ _id: 3 }).userName, "Mary");

db.dropDatabase();
print("ok 01-sync-flag");
