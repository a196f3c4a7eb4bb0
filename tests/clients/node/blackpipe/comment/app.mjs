// Adds a comment to a post, and repeats the update after a network error.
//
// The mistake: $push adds the comment again. The driver repeats updateOne once by itself, and the server applies it
// once; the program sees an error only if the repetition is lost, too: --times 2.

import { MongoClient, MongoNetworkError } from "mongodb";

const client = new MongoClient(process.env.MONGODB_URI);
const posts = client.db("blog").collection("posts");
const comment = { author: "ann", text: "Well said." };
for (;;) {
  try {
    await posts.updateOne({ _id: "post-1" }, { $push: { comments: comment } }, { upsert: true });
    break;
  } catch (error) {
    if (!(error instanceof MongoNetworkError)) throw error;
  }
}
await client.close();
