// A user with two posts.

import { MongoClient } from "mongodb";

const client = new MongoClient(process.env.MONGODB_URI);
const blog = client.db("blog");
await blog.collection("users").insertOne({ _id: "ann", erased: false });
await blog.collection("posts").insertMany([{ author: "ann" }, { author: "ann" }]);
await client.close();
