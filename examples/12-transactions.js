// Transactions, in mongosh: what the two-phase commits of the examples before take many steps for is one step here.

const assert = require("assert");
db = db.getSiblingDB("example_transactions");
db.dropDatabase();

const balances = () => db.accounts.find().sort({ _id: 1 }).toArray().map(({ _id, balance }) => [_id, balance]);

// Bob pays Joe 7. Bob has 10, Joe has 2.
db.accounts.insertMany([{ _id: "Bob", balance: 10 }, { _id: "Joe", balance: 2 }]);
const session = db.getMongo().startSession();
const within = session.getDatabase(db.getName());

session.startTransaction();
within.accounts.updateOne({ _id: "Bob" }, { $inc: { balance: -7 } });
within.accounts.updateOne({ _id: "Joe" }, { $inc: { balance: 7 } });
// Nobody else sees half of it.
assert.deepEqual(balances(), [["Bob", 10], ["Joe", 2]]);
session.commitTransaction();
assert.deepEqual(balances(), [["Bob", 3], ["Joe", 9]]);

// The transfer of 100 from A to B, with its document. withTransaction runs it again after a conflict; what throws is rolled back.
db.accounts.drop();
db.accounts.insertMany([{ _id: "A", balance: 1000 }, { _id: "B", balance: 1000 }]);
db.createCollection("transactions");
const transfer = (value) =>
  session.withTransaction(() => {
    within.transactions.insertOne({ source: "A", destination: "B", value, state: "done", lastModified: new Date() });
    within.accounts.updateOne({ _id: "B" }, { $inc: { balance: value } });
    const taken = within.accounts.updateOne({ _id: "A", balance: { $gte: value } }, { $inc: { balance: -value } });
    if (taken.matchedCount === 0) throw new RangeError("A has too little");
  });

transfer(100);
assert.deepEqual(balances(), [["A", 900], ["B", 1100]]);

let refused;
try {
  transfer(1000);
} catch (error) {
  refused = error;
}
assert.equal(refused?.message, "A has too little");
assert.deepEqual(balances(), [["A", 900], ["B", 1100]]);
assert.deepEqual(db.transactions.find().toArray().map(({ value }) => value), [100]);

session.endSession();
db.dropDatabase();
print("ok 12-transactions");
