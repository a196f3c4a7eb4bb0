// The commands of job queues in mongosh, alone and in a transaction.

const assert = require("assert");
db = db.getSiblingDB("mongosh_jobs");
db.dropDatabase();

const claim = (name, job) => ({ [name]: "jobs", job });

assert.equal(db.runCommand({ handfastEnqueueJob: "jobs", job: { _id: 1, type: "mail", details: { to: "ann" } } }).inserted, true);
const session = db.getMongo().startSession();
session.startTransaction();
session.getDatabase("mongosh_jobs").runCommand({ handfastEnqueueJob: "jobs", job: { _id: 2, type: "mail" } });
session.abortTransaction();
const { jobs } = db.runCommand({ handfastClaimJobs: "jobs", worker: "shell", types: ["mail"], count: 10 });
assert.deepEqual(jobs.map((job) => job._id), [1]);
assert.equal(db.runCommand(claim("handfastReleaseJob", jobs[0])).claimState, "held");
const [again] = db.runCommand({ handfastClaimJobs: "jobs", worker: "shell", types: ["mail"] }).jobs;
assert.equal(Number(again.claims), 2);
assert.equal(db.runCommand(claim("handfastCompleteJob", again)).claimState, "held");
assert.equal(db.jobs.countDocuments({ state: "DONE" }), 1);
db.dropDatabase();
