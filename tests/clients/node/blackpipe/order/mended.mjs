// Places an order with an _id of its own. If a repetition finds the _id in use, an earlier try was applied.

import { MongoClient, MongoNetworkError, ObjectId } from "mongodb";

const DUPLICATE_KEY = 11000;

const client = new MongoClient(process.env.MONGODB_URI, { retryWrites: false });
const orders = client.db("shop").collection("orders");
const order = { _id: new ObjectId(), customer: "ann", item: "book" };
for (;;) {
  try {
    await orders.insertOne(order);
    break;
  } catch (error) {
    if (error.code === DUPLICATE_KEY && error.keyPattern?._id) break;
    if (!(error instanceof MongoNetworkError)) throw error;
  }
}
await client.close();
