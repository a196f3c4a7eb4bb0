// Recovery of two-phase commits: a transfer that stopped while pending, or while applied, is found by its lastModified and
// taken up at the step where it may have stopped. Every crash point of the walk is tried, and the outcome is always the same.

const assert = require("assert");
db = db.getSiblingDB("example_two_phase_recovery");

const steps = {
  pending: [
    (t) => db.accounts.update({ _id: t.source, pendingTransactions: { $ne: t._id } }, { $inc: { balance: -t.value }, $push: { pendingTransactions: t._id } }),
    (t) => db.accounts.update({ _id: t.destination, pendingTransactions: { $ne: t._id } }, { $inc: { balance: t.value }, $push: { pendingTransactions: t._id } }),
    (t) => db.transactions.update({ _id: t._id, state: "pending" }, { $set: { state: "applied" }, $currentDate: { lastModified: true } }),
  ],
  applied: [
    (t) => db.accounts.update({ _id: t.source, pendingTransactions: t._id }, { $pull: { pendingTransactions: t._id } }),
    (t) => db.accounts.update({ _id: t.destination, pendingTransactions: t._id }, { $pull: { pendingTransactions: t._id } }),
    (t) => db.transactions.update({ _id: t._id, state: "applied" }, { $set: { state: "done" }, $currentDate: { lastModified: true } }),
  ],
};
const all = [...steps.pending, ...steps.applied];

for (let crashAfter = 0; crashAfter <= all.length; crashAfter++) {
  db.dropDatabase();
  db.accounts.insert([{ _id: "A", balance: 1000, pendingTransactions: [] }, { _id: "B", balance: 1000, pendingTransactions: [] }]);
  db.transactions.insert({ _id: 1, source: "A", destination: "B", value: 100, state: "pending", lastModified: new Date() });
  const begun = db.transactions.findOne();
  all.slice(0, crashAfter).forEach((step) => step(begun));
  // An hour passes.
  db.transactions.updateOne({ _id: 1 }, { $set: { lastModified: new Date(Date.now() - 3600 * 1000) } });

  {
    // As printed: transactions that have been pending for half an hour.
    var dateThreshold = new Date();
    dateThreshold.setMinutes(dateThreshold.getMinutes() - 30);
    var t = db.transactions.findOne( { state: "pending", lastModified: { $lt: dateThreshold } } );
    assert.equal(t !== null, crashAfter < 3);
    if (t) steps.pending.forEach((step) => step(t));
  }
  // A second look: what is applied now was touched just now, so it is not found before its half hour has passed.
  db.transactions.updateOne({ _id: 1 }, { $set: { lastModified: new Date(Date.now() - 3600 * 1000) } });
  {
    var dateThreshold = new Date();
    dateThreshold.setMinutes(dateThreshold.getMinutes() - 30);
    var t = db.transactions.findOne( { state: "applied", lastModified: { $lt: dateThreshold } } );
    assert.equal(t !== null, crashAfter < 6);
    if (t) steps.applied.forEach((step) => step(t));
  }

  assert.equal(db.transactions.findOne().state, "done");
  assert.deepEqual(db.accounts.find().sort({ _id: 1 }).toArray(), [
    { _id: "A", balance: 900, pendingTransactions: [] },
    { _id: "B", balance: 1100, pendingTransactions: [] },
  ]);
}

// A transaction that is young enough is somebody else's work.
db.transactions.insert({ _id: 2, source: "A", destination: "B", value: 1, state: "pending", lastModified: new Date() });
var dateThreshold = new Date();
dateThreshold.setMinutes(dateThreshold.getMinutes() - 30);
assert.equal(db.transactions.findOne( { state: "pending", lastModified: { $lt: dateThreshold } } ), null);

db.dropDatabase();
print("ok 07-two-phase-recovery");
