// Erases the posts of a user, and reports that they are erased.
//
// The mistake: it logs a network error and goes on, and reports success although the posts may be there. One lost
// request is enough, because the driver does not repeat deleteMany.

import { MongoClient } from "mongodb";

const client = new MongoClient(process.env.MONGODB_URI);
const blog = client.db("blog");
try {
  await blog.collection("posts").deleteMany({ author: "ann" });
} catch (error) {
  console.error(`cannot erase the posts: ${error.message}`);
}
await blog.collection("users").updateOne({ _id: "ann" }, { $set: { erased: true } });
await client.close();
