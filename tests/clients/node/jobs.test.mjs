// The commands of job queues through the official Node driver, alone and in the driver's transaction.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { MongoClient } from "mongodb";

const client = new MongoClient(process.env.MONGODB_URI, { serverSelectionTimeoutMS: 5000 });
const database = client.db("node_jobs");

before(() => client.connect());
beforeEach(() => database.dropDatabase());
after(async () => {
  await database.dropDatabase();
  await client.close();
});

const enqueue = (job, options) => database.command({ handfastEnqueueJob: "jobs", job: { type: "mail", ...job } }, options);
const claim = async () => (await database.command({ handfastClaimJobs: "jobs", worker: "w", types: ["mail"], count: 10 })).jobs;
const ofClaim = (name, job, more = {}) => ({ [name]: "jobs", job, ...more });

test("a job is done", async () => {
  assert.equal((await enqueue({ _id: 1, details: { to: "ann" } })).inserted, true);
  const [job] = await claim();
  assert.deepEqual(job.details, { to: "ann" });
  assert.equal((await database.command(ofClaim("handfastCompleteJob", job, { result: "sent" }))).claimState, "held");
  assert.equal((await database.collection("jobs").findOne({ _id: 1 })).state, "DONE");
});

test("a job exists if and only if the order commits", async () => {
  for (const commits of [false, true]) {
    await client.withSession(async (session) => {
      session.startTransaction();
      await database.collection("orders").insertOne({ _id: String(commits) }, { session });
      await enqueue({ _id: String(commits) }, { session });
      await (commits ? session.commitTransaction() : session.abortTransaction());
    });
  }
  assert.deepEqual((await claim()).map(({ _id }) => _id), ["true"]);
});

test("a job is done if and only if its effect commits", async () => {
  await enqueue({ _id: 1 });
  const [job] = await claim();
  await client.withSession((session) =>
    session.withTransaction(async () => {
      await database.collection("sent").insertOne({ _id: job._id }, { session });
      assert.equal((await database.command(ofClaim("handfastCompleteJob", job), { session })).claimState, "held");
    }),
  );
  assert.equal(await database.collection("jobs").countDocuments({ state: "DONE" }), 1);
});
