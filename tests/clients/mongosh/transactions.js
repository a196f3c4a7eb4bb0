// Transactions in mongosh: the transfers of the seed documents, withTransaction, a conflict.

const assert = require("assert");
const mine = db.getSiblingDB("mongosh_transactions");
mine.dropDatabase();

const balances = () => Object.fromEntries(mine.accounts.find().sort({ _id: 1 }).toArray().map(({ _id, balance }) => [_id, balance]));
// Every statement of a session goes through a database of the session.
const within = (session) => session.getDatabase(mine.getName());
const refusal = (statement) => {
  try {
    statement();
  } catch (error) {
    return error;
  }
  return null;
};

// Bob pays Joe 7.
mine.accounts.insertMany([{ _id: "Bob", balance: 10 }, { _id: "Joe", balance: 2 }]);
const session = db.getMongo().startSession();
session.startTransaction();
within(session).accounts.updateOne({ _id: "Bob" }, { $inc: { balance: -7 } });
within(session).accounts.updateOne({ _id: "Joe" }, { $inc: { balance: 7 } });
assert.deepEqual(balances(), { Bob: 10, Joe: 2 });
session.commitTransaction();
assert.deepEqual(balances(), { Bob: 3, Joe: 9 });

// A transfer of 100 from A to B, with the document of the transfer in the same transaction. The second transfer exceeds the balance.
mine.accounts.drop();
mine.accounts.insertMany([{ _id: "A", balance: 1000 }, { _id: "B", balance: 1000 }]);
mine.createCollection("transfers");
const transfer = (value) =>
  session.withTransaction(() => {
    within(session).transfers.insertOne({ from: "A", to: "B", value, state: "done" });
    within(session).accounts.updateOne({ _id: "B" }, { $inc: { balance: value } });
    const taken = within(session).accounts.updateOne({ _id: "A", balance: { $gte: value } }, { $inc: { balance: -value } });
    if (taken.matchedCount === 0) throw new RangeError("A has too little");
  });
transfer(100);
const tooLittle = refusal(() => transfer(1000));
assert.equal(tooLittle.message, "A has too little");
assert.deepEqual(balances(), { A: 900, B: 1100 });
assert.equal(mine.transfers.countDocuments(), 1);

// A transaction that is rolled back has no effect.
session.startTransaction();
within(session).accounts.deleteMany({});
assert.equal(within(session).accounts.countDocuments({}), 0);
session.abortTransaction();
assert.deepEqual(balances(), { A: 900, B: 1100 });

// The second writer of a document gets a conflict at once.
const other = db.getMongo().startSession();
session.startTransaction();
other.startTransaction();
within(session).accounts.updateOne({ _id: "A" }, { $inc: { balance: 1 } });
const conflict = refusal(() => within(other).accounts.updateOne({ _id: "A" }, { $inc: { balance: 1 } }));
assert.equal(conflict.code, 112);
assert.ok(conflict.hasErrorLabel("TransientTransactionError"));
session.commitTransaction();
assert.deepEqual(balances(), { A: 901, B: 1100 });

session.endSession();
other.endSession();
mine.dropDatabase();
print("ok");
