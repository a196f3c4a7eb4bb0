// Places an order in a transaction, and then writes a message about it for other programs.
//
// The mistake: if the program ends after the commit, nobody writes the message. The driver repeats the insert of the
// message once by itself, so that it takes a second lost request: --times 2.

import { MongoClient } from "mongodb";

const client = new MongoClient(process.env.MONGODB_URI);
const shop = client.db("shop");
try {
  await client.withSession((session) =>
    session.withTransaction(async () => {
      await shop.collection("orders").insertOne({ _id: "order-1", item: "book" }, { session });
      await shop.collection("sales").updateOne({ _id: "book" }, { $inc: { sold: 1 } }, { upsert: true, session });
    }),
  );
  await shop.collection("outbox").insertOne({ order: "order-1", event: "placed" });
} finally {
  await client.close();
}
