// Sends one operation after the other, and tells which failed: those that the driver does not repeat by itself.

import { MongoClient, MongoNetworkError } from "mongodb";

const client = new MongoClient(process.env.MONGODB_URI);
const shop = client.db("shop");
const items = shop.collection("items");
const failed = [];

async function call(name, operation) {
  try {
    await operation();
    return true;
  } catch (error) {
    if (!(error instanceof MongoNetworkError)) throw error;
    failed.push(name);
    return false;
  }
}

async function transaction(session) {
  session.startTransaction();
  const isInserted = await call("insertOne in a transaction", () => items.insertOne({}, { session }));
  if (isInserted) await call("commitTransaction", () => session.commitTransaction());
}

await call("createIndex", () => items.createIndex({ number: 1 }));
await call("insertOne", () => items.insertOne({ number: 1 }));
await call("insertMany", () => items.insertMany([{ number: 2 }, { number: 3 }]));
await call("bulkWrite", () => items.bulkWrite([{ insertOne: { document: { number: 4 } } }]));
await call("updateOne", () => items.updateOne({ number: 1 }, { $inc: { price: 1 } }));
await call("replaceOne", () => items.replaceOne({ number: 2 }, { number: 2 }));
await call("updateMany", () => items.updateMany({}, { $inc: { price: 1 } }));
const updateMany = { filter: {}, update: { $inc: { price: 1 } } };
await call("bulkWrite with updateMany", () => items.bulkWrite([{ updateMany }]));
await call("findOneAndUpdate", () => items.findOneAndUpdate({ number: 1 }, { $inc: { price: 1 } }));
await call("deleteOne", () => items.deleteOne({ number: 1 }));
await call("deleteMany", () => items.deleteMany({ number: 2 }));
await call("findOne", () => items.findOne());
await call("find, next batch", () => items.find({}, { batchSize: 1 }).toArray());
await call("countDocuments", () => items.countDocuments());
await call("distinct", () => items.distinct("number"));
await call("aggregate with $out", () => items.aggregate([{ $out: "copy" }]).toArray());
await call("listCollections", () => shop.listCollections().toArray());
await call("command", () => shop.command({ count: "items" }));
await client.withSession(transaction);
await client.close();
if (failed.length > 0) {
  console.error(`failed: ${failed.join(", ")}`);
  process.exitCode = 1;
}
