// A worker of the queue shop.jobs in plain calls of the Node driver. It works until it is killed.
//
//     MONGODB_URI=mongodb://127.0.0.1:27017 node worker.mjs NAME
//
// A job "mail" has its effect, a document in shop.sent, in the transaction that completes the job and enqueues a job "count". A job "count" counts the
// mail in a document of shop.boxes, which workers without transactions change as well: its change is guarded as JobContext::guard of the Rust library does it.

import { setTimeout } from "node:timers/promises";
import { MongoClient, MongoError, MongoServerSelectionError } from "mongodb";

const name = process.argv[2];
// The jobs of a claim.
const COUNT = 5;
// The pause between two looks at an empty queue, and before a job is repeated after an error.
const PAUSE_MILLIS = 20;

// In a transaction a job that another worker has, or that is done, is an error, which aborts the transaction.
const LOST_CODES = [117, 256];

const client = new MongoClient(process.env.MONGODB_URI);
const shop = client.db("shop");

/** Another worker has the job, or had it: nothing of this one may be left. */
class Lost extends Error {}
/** The transaction is to be aborted. */
class Rollback extends Error {}

async function complete(job, options) {
  const command = { handfastCompleteJob: "jobs", job, result: { by: name } };
  const { claimState } = await shop.command(command, options);
  if (claimState !== "held") throw new Lost();
}

const enqueueCount = (job, id, session) =>
  shop.command({ handfastEnqueueJob: "jobs", job: { _id: id, type: "count", details: job.details } }, { session });

const mail = (job) =>
  client.withSession(async (session) => {
    const aborted = session.withTransaction(async () => {
      await enqueueCount(job, `aborted of ${job._id}`, session);
      throw new Rollback();
    });
    await aborted.catch(unless(Rollback));
    await session.withTransaction(async () => {
      await shop.collection("sent").insertOne({ mail: job._id, by: name }, { session });
      await enqueueCount(job, `count of ${job._id}`, session);
      await complete(job, { session });
    });
  });

async function count(job) {
  const mark = { work: job._id, step: "count", number: job.claims };
  const made = { $elemMatch: { work: mark.work, step: mark.step } };
  const fenced = { $elemMatch: { work: mark.work, number: { $gt: mark.number } } };
  const unmarked = { _id: job.details.box, $nor: [{ applied: made }, { applied: fenced }] };
  const change = { $inc: { mails: 1 }, $push: { applied: mark }, $currentDate: { appliedAt: true } };
  await shop.collection("boxes").updateOne(unmarked, change);
  await complete(job);
}

/** Returns a handler that throws all errors but those of a class. */
function unless(expected) {
  return (error) => {
    if (!(error instanceof expected)) throw error;
  };
}

/** Does the job until an answer says that it is done or lost. */
async function work(job) {
  for (;;) {
    try {
      return await { mail, count }[job.type](job).catch(unless(Lost));
    } catch (error) {
      if (LOST_CODES.includes(error.code)) return;
      await afterError(error);
    }
  }
}

/** Waits a moment after an error of the driver; any other one ends the worker, and so does a server that is gone. */
async function afterError(error) {
  unless(MongoError)(error);
  if (error instanceof MongoServerSelectionError) throw error;
  console.error(`${name}: ${error}`);
  await setTimeout(PAUSE_MILLIS);
}

for (;;) {
  let jobs = [];
  try {
    const claim = { handfastClaimJobs: "jobs", worker: name, types: ["mail", "count"], count: COUNT };
    ({ jobs } = await shop.command(claim));
  } catch (error) {
    await afterError(error);
  }
  for (const job of jobs) await work(job);
  if (jobs.length === 0) await setTimeout(PAUSE_MILLIS);
}
