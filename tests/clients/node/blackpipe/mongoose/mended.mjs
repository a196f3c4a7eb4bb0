// Adds a comment to a post with Mongoose. After a network error it reads the post again, and looks for the _id of the
// comment.

import mongoose from "mongoose";

await mongoose.connect(process.env.MONGODB_URI, { dbName: "blog", autoCreate: false, retryWrites: false });
const Post = mongoose.model("Post", new mongoose.Schema({ _id: String, comments: [{ text: String }] }));
const comment = { _id: new mongoose.Types.ObjectId(), text: "Well said." };
for (;;) {
  try {
    const post = await Post.findById("post-1");
    if (post.comments.id(comment._id)) break;
    post.comments.push(comment);
    await post.save();
    break;
  } catch (error) {
    if (!(error instanceof mongoose.mongo.MongoNetworkError)) throw error;
  }
}
await mongoose.disconnect();
