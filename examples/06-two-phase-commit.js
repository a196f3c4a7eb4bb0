// "Perform two phase commits", the whole walk: initial, pending, applied, cleared, done.
//
// The statements stand as they are printed, with the shell's older helpers `insert` and `update`. Those return today's
// results: `insertedCount` or `insertedIds` for nInserted, `matchedCount` and `modifiedCount` for nMatched and nModified.

const assert = require("assert");
db = db.getSiblingDB("example_two_phase_commit");
db.dropDatabase();

const changedOne = (result) => assert.deepEqual([result.matchedCount, result.modifiedCount], [1, 1]);
const changedNone = (result) => assert.deepEqual([result.matchedCount, result.modifiedCount], [0, 0]);
const inserted = (result, count) => assert.equal(Object.keys(result.insertedIds).length, count);

// Source and destination accounts.
inserted(
  db.accounts.insert(
    [
      { _id: "A", balance: 1000, pendingTransactions: [] },
      { _id: "B", balance: 1000, pendingTransactions: [] }
    ]
  ),
  2,
);

// The transfer.
inserted(
  db.transactions.insert(
    { _id: 1, source: "A", destination: "B", value: 100, state: "initial", lastModified: new Date() }
  ),
  1,
);

// Retrieve the transaction.
var t = db.transactions.findOne( { state: "initial" } )
assert.deepEqual({ ...t, lastModified: null }, { _id: 1, source: "A", destination: "B", value: 100, state: "initial", lastModified: null });
assert.ok(t.lastModified instanceof Date);

// Set its state to pending.
const toPending = () =>
  db.transactions.update(
    { _id: t._id, state: "initial" },
    {
      $set: { state: "pending" },
      $currentDate: { lastModified: true }
    }
  );
changedOne(toPending());
// Another application comes too late: nothing matches.
changedNone(toPending());
assert.ok(db.transactions.findOne({ _id: 1 }).lastModified >= t.lastModified);

// Apply the transaction to both accounts; the condition keeps it from being applied twice.
const applySource = () =>
  db.accounts.update(
    { _id: t.source, pendingTransactions: { $ne: t._id } },
    { $inc: { balance: -t.value }, $push: { pendingTransactions: t._id } }
  );
const applyDestination = () =>
  db.accounts.update(
    { _id: t.destination, pendingTransactions: { $ne: t._id } },
    { $inc: { balance: t.value }, $push: { pendingTransactions: t._id } }
  );
changedOne(applySource());
changedOne(applyDestination());
changedNone(applySource());
changedNone(applyDestination());
assert.deepEqual(db.accounts.find().sort({ _id: 1 }).toArray(), [
  { _id: "A", balance: 900, pendingTransactions: [1] },
  { _id: "B", balance: 1100, pendingTransactions: [1] },
]);

// Set its state to applied.
changedOne(
  db.transactions.update(
    { _id: t._id, state: "pending" },
    {
      $set: { state: "applied" },
      $currentDate: { lastModified: true }
    }
  ),
);

// Remove it from both accounts' lists of pending transactions.
changedOne(
  db.accounts.update(
    { _id: t.source, pendingTransactions: t._id },
    { $pull: { pendingTransactions: t._id } }
  ),
);
changedOne(
  db.accounts.update(
    { _id: t.destination, pendingTransactions: t._id },
    { $pull: { pendingTransactions: t._id } }
  ),
);

// Set its state to done.
changedOne(
  db.transactions.update(
    { _id: t._id, state: "applied" },
    {
      $set: { state: "done" },
      $currentDate: { lastModified: true }
    }
  ),
);
assert.deepEqual(db.accounts.find().sort({ _id: 1 }).toArray(), [
  { _id: "A", balance: 900, pendingTransactions: [] },
  { _id: "B", balance: 1100, pendingTransactions: [] },
]);
assert.equal(db.transactions.findOne({ _id: 1 }).state, "done");

db.dropDatabase();
print("ok 06-two-phase-commit");
