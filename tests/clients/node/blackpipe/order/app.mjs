// Places an order, and repeats the insert after a network error.
//
// The mistake: the driver makes another _id for each call, so that an insert that was applied before the error is
// applied again. The driver would repeat insertOne once by itself, and the server would apply it once; this program
// turns that off, as for servers that do not support it.

import { MongoClient, MongoNetworkError } from "mongodb";

const client = new MongoClient(process.env.MONGODB_URI, { retryWrites: false });
const orders = client.db("shop").collection("orders");
for (;;) {
  try {
    await orders.insertOne({ customer: "ann", item: "book" });
    break;
  } catch (error) {
    if (!(error instanceof MongoNetworkError)) throw error;
  }
}
await client.close();
