// Adds a comment to a post with Mongoose, in a transaction: if it was not committed it runs again, with the post read
// again.

import mongoose from "mongoose";

await mongoose.connect(process.env.MONGODB_URI, { dbName: "blog", autoCreate: false });
const Post = mongoose.model("Post", new mongoose.Schema({ _id: String, comments: [{ text: String }] }));
await mongoose.connection.transaction(async (session) => {
  const post = await Post.findById("post-1").session(session);
  post.comments.push({ text: "Well said." });
  await post.save({ session });
});
await mongoose.disconnect();
