// Erases the posts of a user, and reports that they are erased. It repeats the deletion until it succeeds: a repetition
// does no harm.

import { MongoClient, MongoNetworkError } from "mongodb";

const client = new MongoClient(process.env.MONGODB_URI);
const blog = client.db("blog");
for (;;) {
  try {
    await blog.collection("posts").deleteMany({ author: "ann" });
    break;
  } catch (error) {
    if (!(error instanceof MongoNetworkError)) throw error;
  }
}
await blog.collection("users").updateOne({ _id: "ann" }, { $set: { erased: true } });
await client.close();
