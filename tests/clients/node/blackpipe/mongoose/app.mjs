// Adds a comment to a post with Mongoose, and saves the post again after a network error.
//
// The mistake: save sends the change of the array as $push, and sends it again. The driver would repeat the update once
// by itself, and the server would apply it once; this program turns that off, as for servers that do not support it.

import mongoose from "mongoose";

await mongoose.connect(process.env.MONGODB_URI, { dbName: "blog", autoCreate: false, retryWrites: false });
const Post = mongoose.model("Post", new mongoose.Schema({ _id: String, comments: [{ text: String }] }));
const post = await Post.findById("post-1");
post.comments.push({ text: "Well said." });
for (;;) {
  try {
    await post.save();
    break;
  } catch (error) {
    if (!(error instanceof mongoose.mongo.MongoNetworkError)) throw error;
  }
}
await mongoose.disconnect();
