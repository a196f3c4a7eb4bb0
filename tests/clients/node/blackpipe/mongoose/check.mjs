// The post has one comment.

import { MongoClient } from "mongodb";

const client = new MongoClient(process.env.MONGODB_URI);
const post = await client.db("blog").collection("posts").findOne({ _id: "post-1" });
await client.close();
if (post.comments.length !== 1) {
  console.error(`there must be 1 comment: there are ${post.comments.length}`);
  process.exitCode = 1;
}
