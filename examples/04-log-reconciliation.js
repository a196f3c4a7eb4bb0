// Solution 4: log reconciliation, as financial systems do it.
//
// A transaction is one document with the changes of all its accounts, so it is written at once or not at all. Every change has
// the account's next sequence number; a unique index over {changes.account, changes.seqId} lets one writer through, the others
// try the next number. A balance is the last trustworthy cached one plus what came after it.

const assert = require("assert");
db = db.getSiblingDB("example_log_reconciliation");
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

assert.equal(
  db.tx.createIndex({ "changes.account": 1, "changes.seqId": 1 }, { unique: true }),
  "changes.account_1_changes.seqId_1",
);
const account = { _id: 1234, cache: { balance: 10000, seqId: 115 } };
db.account.insertOne(account);
assert.deepEqual(db.account.findOne({ _id: 1234 }), account);

const change = (account, value, seqId, cachedBal) => ({ account, type: value < 0 ? "withdraw" : "deposit", value, seqId, cachedBal });
const transaction = (proc, state, ...changes) => ({ _id: ObjectId(), ts: new Date(), proc, state, changes });
db.tx.insertOne(transaction("COMMITTED", "VALID", change(1234, 500, 800, 10500), change(2345, -500, 202, 900)));
db.tx.insertOne(transaction("UNCOMMITTED", "VALID", change(1234, -100, 801, null), change(2345, 100, 203, null)));

// The next sequence number of an account: its greatest so far. The projection keeps the change that matched.
// As printed, `changes.$.seqId`; MongoDB 4.4 and later refuse a path behind the positional operator with 31394 and want `changes.$`.
let refused = refusal(() => db.tx.find({ "changes.account": 1234 }, { "changes.$.seqId": 1 }).sort({ "changes.seqId": -1 }).limit(1).toArray());
assert.equal(refused.code, 31394);
const last = db.tx.find({ "changes.account": 1234 }, { "changes.$": 1 }).sort({ "changes.seqId": -1 }).limit(1).toArray();
assert.equal(last.length, 1);
assert.deepEqual(last[0].changes, [change(1234, -100, 801, null)]);

// Two writers took the same number: one is in, the other gets a duplicate key error and tries the next number.
const seqId = last[0].changes[0].seqId + 1;
db.tx.insertOne(transaction("UNCOMMITTED", "VALID", change(1234, 40, seqId, null)));
refused = refusal(() => db.tx.insertOne(transaction("UNCOMMITTED", "VALID", change(1234, 60, seqId, null), change(9999, -60, 1, null))));
assert.equal(refused.code, 11000);
assert.match(refused.message, /E11000 duplicate key error collection: example_log_reconciliation\.tx index: changes.account_1_changes.seqId_1/);
assert.equal(db.tx.countDocuments({ "changes.account": 9999 }), 0, "the refused transaction left nothing, in no account");
db.tx.insertOne(transaction("UNCOMMITTED", "VALID", change(1234, 60, seqId + 1, null), change(9999, -60, 1, null)));
// A cancelled one counts for nothing.
db.tx.insertOne(transaction("UNCOMMITTED", "CANCELED", change(1234, 1000000, seqId + 2, null)));

// The last good balance: the newest committed transaction of the account.
const good = db.tx.find({ "changes.account": 1234, proc: "COMMITTED" }, { "changes.$": 1 }).sort({ "changes.seqId": -1 }).limit(1).toArray();
assert.deepEqual(good[0].changes, [change(1234, 500, 800, 10500)]);
const lastGoodSeqId = good[0].changes[0].seqId;

// Everything after it, in order. Read strictly, the two conditions may be met by different changes of one document, and the
// positional operator then shows the element of the condition that was looked at last; with $elemMatch there is no doubt.
const asPrinted = db.tx.find({ "changes.account": 1234, "changes.seqId": { $gt: lastGoodSeqId } }, { "changes.$": 1 }).sort({ "changes.seqId": 1 }).toArray();
assert.equal(asPrinted.length, 4);
assert.ok(asPrinted.every((document) => document.changes.length === 1));
const pending = db.tx
  .find({ changes: { $elemMatch: { account: 1234, seqId: { $gt: lastGoodSeqId } } } }, { "changes.$": 1 })
  .sort({ "changes.seqId": 1 })
  .toArray()
  .map((document) => document.changes[0]);
assert.deepEqual(pending.map((one) => one.account), [1234, 1234, 1234, 1234]);
assert.deepEqual(pending.map((one) => one.value).sort((a, b) => a - b), [-100, 40, 60, 1000000]);

// The pending balance in one question. As printed, field paths lack their `$`: `$unwind: "changes"` is refused with 28818 ...
refused = refusal(() =>
  db.tx
    .aggregate([
      { $match: { "changes.account": 1234, "changes.seqId": { $gt: lastGoodSeqId }, state: "VALID" } },
      { $unwind: "changes" },
      { $match: { account: 1234 } },
      { $group: { _id: "total", total: { $sum: "$value" } } },
    ])
    .toArray(),
);
assert.equal(refused.code, 28818);
// ... and what is meant is this. (The account's own changes after the anchor; `total` is a constant, hence one group.)
const total = db.tx
  .aggregate([
    { $match: { "changes.account": 1234, "changes.seqId": { $gt: lastGoodSeqId }, state: "VALID" } },
    { $unwind: "$changes" },
    { $match: { "changes.account": 1234, "changes.seqId": { $gt: lastGoodSeqId } } },
    { $group: { _id: "total", total: { $sum: "$changes.value" } } },
  ])
  .toArray();
assert.deepEqual(total, [{ _id: "total", total: -100 + 40 + 60 }]);

// The background process commits a transaction when every one with a smaller number of the same accounts is committed.
let committed;
do {
  committed = 0;
  for (const one of db.tx.find({ proc: "UNCOMMITTED" }).sort({ "changes.seqId": 1 }).toArray()) {
    let before = 0;
    for (const each of one.changes) {
      before += db.tx.countDocuments({ proc: "UNCOMMITTED", changes: { $elemMatch: { account: each.account, seqId: { $lt: each.seqId } } } });
    }
    if (before === 0) {
      const result = db.tx.updateOne({ _id: one._id, proc: "UNCOMMITTED" }, { $set: { proc: "COMMITTED" } });
      assert.equal(result.modifiedCount, 1);
      committed++;
    }
  }
} while (committed > 0);
assert.equal(db.tx.countDocuments({ proc: "UNCOMMITTED", "changes.account": 1234 }), 0);

db.dropDatabase();
print("ok 04-log-reconciliation");
