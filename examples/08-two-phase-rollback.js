// Rollback of two-phase commits: canceling, undo on both accounts, cancelled. (The text spells the last state "canceled", its
// statement sets "cancelled"; the statement runs here.) An applied transaction is not rolled back; a new one with source and
// destination changed takes it back.

const assert = require("assert");
db = db.getSiblingDB("example_two_phase_rollback");

const counts = (result) => [result.matchedCount, result.modifiedCount];

// The destination may have got the money already, or not; then its undo matches nothing.
for (const destinationApplied of [true, false]) {
  db.dropDatabase();
  db.accounts.insert([
    { _id: "A", balance: 900, pendingTransactions: [1] },
    { _id: "B", balance: destinationApplied ? 1100 : 1000, pendingTransactions: destinationApplied ? [1] : [] },
  ]);
  db.transactions.insert({ _id: 1, source: "A", destination: "B", value: 100, state: "pending", lastModified: new Date() });
  const t = db.transactions.findOne({ _id: 1 });

  assert.deepEqual(
    counts(
      db.transactions.update(
        { _id: t._id, state: "pending" },
        {
          $set: { state: "canceling" },
          $currentDate: { lastModified: true }
        }
      ),
    ),
    [1, 1],
  );

  // Twice each: the second time nothing matches.
  for (const first of [true, false]) {
    assert.deepEqual(
      counts(
        db.accounts.update(
          { _id: t.destination, pendingTransactions: t._id },
          {
            $inc: { balance: -t.value },
            $pull: { pendingTransactions: t._id }
          }
        ),
      ),
      first && destinationApplied ? [1, 1] : [0, 0],
    );
    assert.deepEqual(
      counts(
        db.accounts.update(
          { _id: t.source, pendingTransactions: t._id },
          {
            $inc: { balance: t.value},
            $pull: { pendingTransactions: t._id }
          }
        ),
      ),
      first ? [1, 1] : [0, 0],
    );
  }

  assert.deepEqual(
    counts(
      db.transactions.update(
        { _id: t._id, state: "canceling" },
        {
          $set: { state: "cancelled" },
          $currentDate: { lastModified: true }
        }
      ),
    ),
    [1, 1],
  );
  assert.deepEqual(db.accounts.find().sort({ _id: 1 }).toArray(), [
    { _id: "A", balance: 1000, pendingTransactions: [] },
    { _id: "B", balance: 1000, pendingTransactions: [] },
  ]);
  assert.equal(db.transactions.findOne().state, "cancelled");

  // What is not pending any more cannot be cancelled.
  assert.deepEqual(
    counts(db.transactions.update({ _id: t._id, state: "pending" }, { $set: { state: "canceling" }, $currentDate: { lastModified: true } })),
    [0, 0],
  );
}

db.dropDatabase();
print("ok 08-two-phase-rollback");
