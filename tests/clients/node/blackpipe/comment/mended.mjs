// Adds a comment with an _id of its own to a post. $addToSet changes nothing if the comment is there already.

import { MongoClient, MongoNetworkError, ObjectId } from "mongodb";

const client = new MongoClient(process.env.MONGODB_URI);
const posts = client.db("blog").collection("posts");
const comment = { _id: new ObjectId(), author: "ann", text: "Well said." };
for (;;) {
  try {
    await posts.updateOne({ _id: "post-1" }, { $addToSet: { comments: comment } }, { upsert: true });
    break;
  } catch (error) {
    if (!(error instanceof MongoNetworkError)) throw error;
  }
}
await client.close();
