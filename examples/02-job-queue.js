// Solution 2: a job queue.
//
// Two users become friends: both documents change, or a job says that they have to. A worker takes the oldest job with one
// atomic findAndModify, makes its changes so that doing them again changes nothing ($addToSet), and marks the job as done.

const assert = require("assert");
db = db.getSiblingDB("example_job_queue");
db.dropDatabase();

const [userA, userB, userC] = ["A", "B", "C"];
db.user.insertMany([{ _id: userA, friends: [] }, { _id: userB, friends: [] }, { _id: userC, friends: [userA] }]);
db.job.createIndex({ state: 1, ts: 1 });

const timeStamp = new Date("2020-01-01T00:00:00Z");
const jobId = ObjectId();
db.job.insertOne({ _id: ObjectId(), ts: new Date(timeStamp.getTime() + 1000), state: "TODO", type: "ADD_FRIEND", details: { users: [userB, userC] } });
db.job.insertOne({ _id: jobId, ts: timeStamp, state: "TODO", type: "ADD_FRIEND", details: { users: [userA, userB] } });

// The oldest job that nobody works on, with the worker's name and time. The document before the change comes back.
const startTime = new Date();
const job = db.job.findAndModify({ query: { state: "TODO" }, sort: { ts: 1 }, update: { $set: { state: "PROCESSING", worker: { name: "worker1", ts: startTime } } } });
assert.deepEqual(job, { _id: jobId, ts: timeStamp, state: "TODO", type: "ADD_FRIEND", details: { users: [userA, userB] } });
assert.deepEqual(db.job.findOne({ _id: jobId }).worker, { name: "worker1", ts: startTime });
const plan = db.job.find({ state: "TODO" }).sort({ ts: 1 }).explain();
assert.match(JSON.stringify(plan.queryPlanner.winningPlan), /IXSCAN.*state_1_ts_1/);
assert.doesNotMatch(JSON.stringify(plan.queryPlanner.winningPlan), /SORT"/, "the index gives the order");

// The worker changes one of the two and dies.
let result = db.user.update({ _id: userA }, { $addToSet: { friends: userB } });
assert.deepEqual([result.matchedCount, result.modifiedCount], [1, 1]);

// After some time a background thread marks the job as to be done; it starts from the beginning.
result = db.job.updateMany({ state: "PROCESSING", "worker.ts": { $lte: startTime } }, { $set: { state: "TODO" }, $unset: { worker: 1 } });
assert.equal(result.modifiedCount, 1);
const again = db.job.findAndModify({ query: { state: "TODO" }, sort: { ts: 1 }, update: { $set: { state: "PROCESSING", worker: { name: "worker2", ts: new Date() } } }, new: true });
assert.deepEqual([again._id, again.state, again.worker.name], [jobId, "PROCESSING", "worker2"]);

// The first change is there already, and is not made twice.
result = db.user.update({ _id: userA }, { $addToSet: { friends: userB } });
assert.deepEqual([result.matchedCount, result.modifiedCount], [1, 0]);
result = db.user.update({ _id: userB }, { $addToSet: { friends: userA } });
assert.deepEqual([result.matchedCount, result.modifiedCount], [1, 1]);
assert.deepEqual(db.user.findOne({ _id: userA }).friends, [userB]);
assert.deepEqual(db.user.findOne({ _id: userB }).friends, [userA]);

result = db.job.update({ _id: jobId }, { $set: { state: "DONE" } });
assert.deepEqual([result.matchedCount, result.modifiedCount], [1, 1]);

// The variant with a sparse index on {undone: 1}: only jobs to be done are in it.
db.job.createIndex({ undone: 1 }, { sparse: true });
db.job.updateMany({ state: { $ne: "DONE" } }, { $set: { undone: 1 } });
assert.equal(db.job.countDocuments({ undone: 1 }), 1);

// Nothing to do gives null.
db.job.updateMany({}, { $set: { state: "DONE" }, $unset: { undone: 1 } });
assert.equal(db.job.findAndModify({ query: { state: "TODO" }, sort: { ts: 1 }, update: { $set: { state: "PROCESSING" } } }), null);

db.dropDatabase();
print("ok 02-job-queue");
