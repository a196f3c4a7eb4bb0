// Places an order in a transaction, and writes the message about it in the same transaction.

import { MongoClient } from "mongodb";

const client = new MongoClient(process.env.MONGODB_URI);
const shop = client.db("shop");
try {
  await client.withSession((session) =>
    session.withTransaction(async () => {
      await shop.collection("orders").insertOne({ _id: "order-1", item: "book" }, { session });
      await shop.collection("sales").updateOne({ _id: "book" }, { $inc: { sold: 1 } }, { upsert: true, session });
      await shop.collection("outbox").insertOne({ order: "order-1", event: "placed" }, { session });
    }),
  );
} finally {
  await client.close();
}
