// Each order has one message, and is among the sales.

import { MongoClient } from "mongodb";

const client = new MongoClient(process.env.MONGODB_URI);
const shop = client.db("shop");
const orders = await shop.collection("orders").countDocuments();
const messages = await shop.collection("outbox").countDocuments();
const sales = await shop.collection("sales").findOne({ _id: "book" });
await client.close();
const sold = sales?.sold ?? 0;
if (messages !== orders || sold !== orders) {
  console.error(`each order must have a message and a sale: ${orders} orders, ${messages} messages, ${sold} sales`);
  process.exitCode = 1;
}
