// Logins and roles through the Node driver; see tests/clients/login/login.py.

import assert from "node:assert/strict";
import { MongoClient } from "mongodb";

const uri = process.env.MONGODB_URI;
const tls = process.env.TLS_CA ? { tls: true, tlsCAFile: process.env.TLS_CA } : {};
const as = (username, password, authSource = "admin") =>
  new MongoClient(uri, { serverSelectionTimeoutMS: 10000, auth: { username, password }, authSource, ...tls });

const boss = as("boss", process.env.BOSS_PASSWORD);
const database = boss.db("node_login");
await database.collection("c").insertMany(Array.from({ length: 300 }, (_, n) => ({ _id: n })));
await database.command({ createUser: "ann", pwd: "ann's pässword", roles: ["read"] });

const ann = as("ann", "ann's pässword", "node_login");
const c = ann.db("node_login").collection("c");
assert.equal((await c.find({}, { batchSize: 10 }).toArray()).length, 300);
await assert.rejects(c.insertOne({}), { code: 13 });
await assert.rejects(ann.db("other").collection("c").findOne(), { code: 13 });
await ann.close();

for (const client of [as("boss", "wrong"), as("nobody", "wrong")]) {
  await assert.rejects(client.db("admin").command({ ping: 1 }), { code: 18, message: "Authentication failed." });
  await client.close();
}
const stranger = new MongoClient(uri, tls);
await assert.rejects(stranger.db("d").collection("c").findOne(), { code: 13 });
await stranger.close();

await database.command({ dropUser: "ann" });
await database.dropDatabase();
await boss.close();
console.log("ok");
