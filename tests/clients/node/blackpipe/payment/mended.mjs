// Books a payment as two entries in a transaction. If the result of the commit is unknown, it repeats the commit alone;
// the server applies it once. Only a transaction that was certainly not committed runs again.

import { MongoClient } from "mongodb";

const client = new MongoClient(process.env.MONGODB_URI);
const entries = client.db("bank").collection("entries");

async function book(session) {
  session.startTransaction();
  await entries.insertOne({ account: "ann", amount: -10 }, { session });
  await entries.insertOne({ account: "bob", amount: 10 }, { session });
  await commit(session);
}

async function commit(session) {
  for (;;) {
    try {
      return await session.commitTransaction();
    } catch (error) {
      if (!error.hasErrorLabel?.("UnknownTransactionCommitResult")) throw error;
    }
  }
}

for (;;) {
  try {
    await client.withSession(book);
    break;
  } catch (error) {
    if (!error.hasErrorLabel?.("TransientTransactionError")) throw error;
  }
}
await client.close();
