// Transactions, in mongosh: what the two-phase commits of the examples before take many steps for is one step here.

const assert = require("assert");
db = db.getSiblingDB("example_transactions");
db.dropDatabase();

const balances = () => db.accounts.find().sort({ _id: 1 }).toArray().map(({ _id, balance }) => [_id, balance]);

const refusal = (run) => {
  try {
    run();
  } catch (error) {
    return error.message;
  }
};

// Moves money: both accounts change, or none. withTransaction runs it again after a conflict, and rolls back what throws. An update that
// matches nothing throws nothing by itself.
const pay = (session, from, to, amount) =>
  session.withTransaction(() => {
    if (!(amount > 0)) throw new RangeError("an amount must be greater than 0");
    const accounts = session.getDatabase(db.getName()).accounts;
    const taken = accounts.updateOne({ _id: from, balance: { $gte: amount } }, { $inc: { balance: -amount } });
    if (taken.matchedCount === 0) throw new RangeError(`${from} has no account, or less than ${amount}`);
    const given = accounts.updateOne({ _id: to }, { $inc: { balance: amount } });
    if (given.matchedCount === 0) throw new RangeError(`${to} has no account`);
  });

// Bob pays Joe 7. Bob has 10, Joe has 2.
db.accounts.insertMany([{ _id: "Bob", balance: 10 }, { _id: "Joe", balance: 2 }]);
const session = db.getMongo().startSession();
pay(session, "Bob", "Joe", 7);
assert.deepEqual(balances(), [["Bob", 3], ["Joe", 9]]);
assert.equal(refusal(() => pay(session, "Bob", "Joe", 7)), "Bob has no account, or less than 7");
assert.equal(refusal(() => pay(session, "Bob", "Jo", 1)), "Jo has no account");
assert.deepEqual(balances(), [["Bob", 3], ["Joe", 9]]);

// Until the commit nobody else sees half of it.
const within = session.getDatabase(db.getName());
session.startTransaction();
within.accounts.updateOne({ _id: "Bob", balance: { $gte: 3 } }, { $inc: { balance: -3 } });
assert.deepEqual(balances(), [["Bob", 3], ["Joe", 9]]);
session.abortTransaction();

// The transfer of 100 from A to B, with its document.
db.accounts.drop();
db.accounts.insertMany([{ _id: "A", balance: 1000 }, { _id: "B", balance: 1000 }]);
db.createCollection("transactions");
const transfer = (destination, value) =>
  session.withTransaction(() => {
    within.transactions.insertOne({ source: "A", destination, value, state: "done", lastModified: new Date() });
    const taken = within.accounts.updateOne({ _id: "A", balance: { $gte: value } }, { $inc: { balance: -value } });
    if (taken.matchedCount === 0) throw new RangeError("A has too little");
    const given = within.accounts.updateOne({ _id: destination }, { $inc: { balance: value } });
    if (given.matchedCount === 0) throw new RangeError(`${destination} has no account`);
  });

transfer("B", 100);
assert.deepEqual(balances(), [["A", 900], ["B", 1100]]);

assert.equal(refusal(() => transfer("B", 1000)), "A has too little");
assert.equal(refusal(() => transfer("C", 100)), "C has no account");
assert.deepEqual(balances(), [["A", 900], ["B", 1100]]);
assert.deepEqual(db.transactions.find().toArray().map(({ value }) => value), [100]);

session.endSession();
db.dropDatabase();
print("ok 12-transactions");
