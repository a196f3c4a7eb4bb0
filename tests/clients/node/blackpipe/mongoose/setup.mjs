// A post without comments.

import { MongoClient } from "mongodb";

const client = new MongoClient(process.env.MONGODB_URI);
await client.db("blog").collection("posts").insertOne({ _id: "post-1", comments: [], __v: 0 });
await client.close();
