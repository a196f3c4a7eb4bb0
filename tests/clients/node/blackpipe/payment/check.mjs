// The payment was booked once.

import { MongoClient } from "mongodb";

const client = new MongoClient(process.env.MONGODB_URI);
const entries = await client.db("bank").collection("entries").find().toArray();
await client.close();
const amounts = entries.map((entry) => `${entry.account} ${entry.amount}`).sort();
if (amounts.join() !== "ann -10,bob 10") {
  console.error(`there must be two entries: ${amounts}`);
  process.exitCode = 1;
}
