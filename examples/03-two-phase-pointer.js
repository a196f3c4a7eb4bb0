// Solution 3: two-phase commit. The document has no statement here; it points to "Perform Two Phase Commits", whose whole
// walk is in examples 06 to 09. What it says in one sentence, "all that is needed fits into documents", in one transfer:

const assert = require("assert");
db = db.getSiblingDB("example_two_phase_pointer");
db.dropDatabase();

db.accounts.insertMany([{ _id: "A", balance: 10, pending: [] }, { _id: "B", balance: 0, pending: [] }]);
db.transactions.insertOne({ _id: 1, from: "A", to: "B", value: 4, state: "pending" });

// Each account learns of the transaction and changes in the same atomic update, once only, however often it is sent.
for (let attempt = 0; attempt < 3; attempt++) {
  db.accounts.updateOne({ _id: "A", pending: { $ne: 1 } }, { $inc: { balance: -4 }, $push: { pending: 1 } });
  db.accounts.updateOne({ _id: "B", pending: { $ne: 1 } }, { $inc: { balance: 4 }, $push: { pending: 1 } });
}
db.transactions.updateOne({ _id: 1, state: "pending" }, { $set: { state: "done" } });
db.accounts.updateMany({ pending: 1 }, { $pull: { pending: 1 } });

assert.deepEqual(db.accounts.find().sort({ _id: 1 }).toArray(), [
  { _id: "A", balance: 6, pending: [] },
  { _id: "B", balance: 4, pending: [] },
]);
assert.equal(db.transactions.findOne().state, "done");

db.dropDatabase();
print("ok 03-two-phase-pointer");
