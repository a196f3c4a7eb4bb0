// Steps of the ledger bank.tx in mongosh, beside the same steps by programs in other languages: repeated, in a transaction, and aborted.

const assert = require("assert");
const name = "mongosh";
db = db.getSiblingDB("bank");

const transfer = (entry, payer, payee, value) => ({
  handfastPostEntry: "tx",
  entry: {
    _id: `${name} ${entry}`,
    changes: [{ account: payer, value: -value, asset: "EUR" }, { account: payee, value, asset: "EUR" }],
  },
});
const amount = (field, asOf) => Number(db.runCommand({ handfastBalance: "tx", account: name, ...asOf })[field]);
const session = db.getMongo().startSession();
const bank = session.getDatabase("bank");

const rollback = new Error("the transaction is to be aborted");

const refusal = (steps) => {
  try {
    steps();
  } catch (error) {
    return error;
  }
  return null;
};

// Runs a transaction with an order and its entry; returns the error that has aborted it.
const order = (number, value, commits) =>
  refusal(() =>
    session.withTransaction(() => {
      bank.orders.insertOne({ by: name, number });
      bank.runCommand(transfer(`order ${number}`, name, "shop", value));
      if (!commits) throw rollback;
    }),
  );

db.runCommand({ handfastOpenAccount: "tx", account: { _id: name, asset: "EUR", minimum: 0 } });
assert.equal(db.runCommand(transfer("deposit", "cash", name, 1000)).posted, true);
assert.equal(db.runCommand(transfer("deposit", "cash", name, 1000)).posted, false);
for (let number = 0; number < 10; number++) {
  const commits = number % 2 === 0;
  assert.equal(order(number, 10, commits), commits ? null : rollback);
}
// As after a commit without an answer.
assert.equal(order(0, 10, true).code, 256);
assert.equal(order(10, 951, true).code, 121);
assert.equal(db.orders.countDocuments({ by: name }), 5);

const hold = { _id: `${name} hold 1` };
db.runCommand({ handfastPostHold: "tx", hold: { ...hold, payer: name, payee: "shop", value: 100, asset: "EUR" } });
assert.equal(amount("available"), 850);
assert.equal(db.runCommand({ handfastCaptureHold: "tx", hold, value: 60 }).holdState, "captured");
assert.equal(refusal(() => db.runCommand({ handfastReleaseHold: "tx", hold })).code, 20);
db.runCommand(transfer("mistake", name, "shop", 1));
const canceled = db.runCommand({ handfastCancelEntry: "tx", entry: { _id: `${name} mistake` }, reason: "a test" });
assert.equal(canceled.canceled, true);
assert.deepEqual([amount("balance"), amount("balance", { entry: `${name} deposit` })], [890, 1000]);
