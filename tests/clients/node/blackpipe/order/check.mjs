// There is one order.

import { MongoClient } from "mongodb";

const client = new MongoClient(process.env.MONGODB_URI);
const orders = await client.db("shop").collection("orders").countDocuments();
await client.close();
if (orders !== 1) {
  console.error(`there must be 1 order: there are ${orders}`);
  process.exitCode = 1;
}
