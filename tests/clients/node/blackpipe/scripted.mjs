// Sends operations to scripted servers, and prints their outcomes, a line each.
//
// Each argument is a list of operations and their collections: insert:a,find:b. The operations of an argument have a client of
// their own, and run one after the other; the arguments run at the same time.

import { MongoClient, MongoNetworkError, MongoServerError } from "mongodb";

const found = async (collection, options = {}) =>
  `${(await collection.find({}, { batchSize: 2, ...options }).toArray()).length} found`;

const operations = {
  find: found,
  find_secondary: (items) => found(items, { readPreference: "secondary" }),
  insert: async (items) => `${(await items.insertOne({ _id: 1 })).insertedId} inserted`,
  update: async (items) => `${(await items.updateOne({}, { $set: { a: 1 } })).modifiedCount} updated`,
  update_many: async (items) => `${(await items.updateMany({}, { $set: { a: 1 } })).modifiedCount} updated`,
  delete: async (items) => `${(await items.deleteOne({})).deletedCount} deleted`,
};

async function outcome(operation, collection) {
  try {
    return await operations[operation](collection);
  } catch (error) {
    if (error instanceof MongoServerError) return `error ${error.code}`;
    return error instanceof MongoNetworkError ? "network error" : error.constructor.name;
  }
}

async function run(argument) {
  const client = new MongoClient(process.env.MONGODB_URI);
  const lines = [];
  for (const [operation, name] of argument.split(",").map((call) => call.split(":"))) {
    lines.push(`${operation}:${name} ${await outcome(operation, client.db("shop").collection(name))}`);
  }
  await client.close();
  return lines;
}

const lines = await Promise.all(process.argv.slice(2).map(run));
console.log(lines.flat().join("\n"));
