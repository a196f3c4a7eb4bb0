// A user that is reported as erased has no posts.

import { MongoClient } from "mongodb";

const client = new MongoClient(process.env.MONGODB_URI);
const blog = client.db("blog");
const { erased } = await blog.collection("users").findOne({ _id: "ann" });
const posts = await blog.collection("posts").countDocuments();
await client.close();
if (erased && posts > 0) {
  console.error(`a user that is erased must have no posts: there are ${posts}`);
  process.exitCode = 1;
}
