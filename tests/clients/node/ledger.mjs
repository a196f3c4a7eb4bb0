// Steps of the ledger bank.tx by the Node driver, beside the same steps by programs in other languages: repeated, in transactions, and aborted.
//
//     MONGODB_URI=mongodb://127.0.0.1:27017 node ledger.mjs

import assert from "node:assert/strict";
import { MongoClient } from "mongodb";

const name = "node";
const client = new MongoClient(process.env.MONGODB_URI);
const bank = client.db("bank");

/** The transaction is to be aborted. */
class Rollback extends Error {}

const run = (command, values, session) => bank.command({ [command]: "tx", ...values }, { session });

const transfer = (entry, payer, payee, value, session) => {
  const changes = [{ account: payer, value: -value, asset: "EUR" }, { account: payee, value, asset: "EUR" }];
  return run("handfastPostEntry", { entry: { _id: `${name} ${entry}`, changes } }, session);
};

const hold = async (number, value) => {
  const _id = `${name} hold ${number}`;
  const { holdState } = await run("handfastPostHold", { hold: { _id, payer: name, payee: "shop", value, asset: "EUR" } });
  assert.equal(holdState, "open");
  return { hold: { _id } };
};

const balance = (asOf) => run("handfastBalance", { account: name, ...asOf });

const order = (session, number, value, commits) =>
  session.withTransaction(async () => {
    await bank.collection("orders").insertOne({ by: name, number }, { session });
    await transfer(`order ${number}`, name, "shop", value, session);
    if (!commits) throw new Rollback();
  });

await run("handfastOpenAccount", { account: { _id: name, asset: "EUR", minimum: 0 } });
assert.equal((await transfer("deposit", "cash", name, 1000)).posted, true);
assert.equal((await transfer("deposit", "cash", name, 1000)).posted, false);

await client.withSession(async (session) => {
  for (let number = 0; number < 10; number++) {
    const commits = number % 2 === 0;
    if (commits) {
      await order(session, number, 10, commits);
      // As after a commit without an answer.
      await assert.rejects(order(session, number, 10, commits), { code: 256 });
    } else {
      await assert.rejects(order(session, number, 10, commits), Rollback);
    }
  }
  const tooMuch = await order(session, 10, 951, true).catch((error) => error);
  assert.equal(tooMuch.code, 121);
  const { account, available, change, minimum } = tooMuch.errInfo;
  assert.deepEqual([account, available, change, minimum], [name, 950, -951, 0]);
});
assert.equal(await bank.collection("orders").countDocuments({ by: name }), 5);

const [captured, released] = [await hold(1, 100), await hold(2, 50)];
assert.equal((await balance()).available, 800);
for (let attempt = 0; attempt < 2; attempt++) {
  assert.equal((await run("handfastCaptureHold", { ...captured, value: 60 })).holdState, "captured");
  assert.equal((await run("handfastReleaseHold", released)).holdState, "released");
}
await assert.rejects(run("handfastReleaseHold", captured), { code: 20 });

await transfer("mistake", name, "shop", 1);
const cancel = { entry: { _id: `${name} mistake` }, reason: "a test" };
assert.equal((await run("handfastCancelEntry", cancel)).canceled, true);
assert.deepEqual([(await balance()).balance, (await balance({ entry: `${name} deposit` })).balance], [890, 1000]);
await client.close();
