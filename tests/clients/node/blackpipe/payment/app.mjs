// Books a payment as two entries in a transaction. It runs the transaction again if the result of the commit is
// unknown.
//
// The mistake: the commit may have been applied, and then the payment is booked again. The driver repeats a commit once
// by itself, so that it takes a second lost reply: --times 2.

import { MongoClient } from "mongodb";

const client = new MongoClient(process.env.MONGODB_URI);
const entries = client.db("bank").collection("entries");

async function book(session) {
  session.startTransaction();
  await entries.insertOne({ account: "ann", amount: -10 }, { session });
  await entries.insertOne({ account: "bob", amount: 10 }, { session });
  await session.commitTransaction();
}

for (;;) {
  try {
    await client.withSession(book);
    break;
  } catch (error) {
    const labels = ["TransientTransactionError", "UnknownTransactionCommitResult"];
    if (!labels.some((label) => error.hasErrorLabel?.(label))) throw error;
  }
}
await client.close();
