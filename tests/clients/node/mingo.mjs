// Random documents, filters, pipelines and updates, evaluated by the server that MONGODB_URI names and by mingo, an independent
// evaluator in JavaScript. What is generated stays within what both know: no documents within arrays, because mingo takes a path
// through them for one array of values, with which $type, $size, $elemMatch, $mod and null then do what MongoDB does not (that
// side is covered by tests/differential). KNOWN lists the differences that remain.
//
//   MONGODB_URI=mongodb://127.0.0.1:27017/ node tests/clients/node/mingo.mjs [SEED] [ROUNDS]

import assert from "node:assert/strict";
import * as mingo from "mingo";
import { MongoClient } from "mongodb";

const seed = Number(process.argv[2] ?? process.env.SEED ?? 20240521);
const rounds = Number(process.argv[3] ?? process.env.ROUNDS ?? 1500);
const DOCUMENTS = 120;

// Where mingo differs from MongoDB's documentation. Anything else that differs fails the run; so does one that a full run never met.
const KNOWN = [
  {
    name: "mingo's $addToSet also removes duplicates that were in the array before, and adds nothing when it did",
    kinds: ["updates"],
    holds: (what) => "$addToSet" in what.change && new Set(what.document.t).size < what.document.t.length,
  },
  {
    // MongoDB yields no value at all for an element that an array does not have: {"t.1": null} does not match {t: [3]}.
    name: "mingo takes an array's element beyond its end for null",
    kinds: ["filters", "pipelines"],
    holds: (what) => /"t\.1":(null|\{[^}]*\bnull\b)/.test(JSON.stringify(what)),
  },
  {
    // MongoDB documents that $count of no documents returns no document.
    name: "mingo's $count of nothing is a document with 0",
    kinds: ["pipelines"],
    holds: (what, ours, theirs) => JSON.stringify(what).includes("$count") && theirs.replaceAll('[{"n":0}]', "[]") === ours,
  },
];

// The generator mulberry32, which is small and gives the same numbers on every machine.
let state = seed >>> 0;
const random = () => {
  state = (state + 0x6d2b79f5) >>> 0;
  let t = Math.imul(state ^ (state >>> 15), 1 | state);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
};
const below = (n) => Math.floor(random() * n);
const pick = (list) => list[below(list.length)];
const times = (n, make) => Array.from({ length: n }, make);

const FIELDS = ["a", "b", "c"];
const scalar = () => pick([() => below(6), () => below(6) - 3, () => below(10) / 2, () => pick(["x", "y", "xy", ""]), () => random() < 0.5, () => null, () => new Date(below(4) * 1000)])();
const value = (depth = 2) => {
  const kind = depth === 0 ? 0 : below(10);
  if (kind < 6) return scalar();
  if (kind < 8) return times(below(4), scalar);
  return nested(depth - 1);
};
const nested = (depth) => Object.fromEntries(FIELDS.filter(() => random() < 0.5).map((name) => [name, value(depth)]));
const makeDocument = (_, i) => ({ _id: i, ...Object.fromEntries(FIELDS.filter(() => random() < 0.8).map((name) => [name, value()])), n: below(20), s: pick(["one", "two", "three"]), t: times(below(4), () => below(5)) });

// Kept out of filters because mingo differs there from what MongoDB documents (tests/differential covers them):
// $type and $mod of array elements ($type does not look into arrays, $mod takes null for 0), $all of a value that is no array,
// a number in a path through text ("xy" has no element 0), dates in lists, $size of a path that is not there, $bucket's lower bounds.
const path = () => pick(["a", "b", "c", "a.b", "b.c", "c.a", "t", "n", "s", "t.1", "missing"]);
const comparable = () => pick([() => below(6) - 1, () => below(6) / 2, () => pick(["x", "xy", "two"]), () => new Date(below(4) * 1000)])();
const listed = () => pick([() => below(6), () => below(6) / 2, () => pick(["x", "two"]), () => random() < 0.5, () => null])();
const condition = () =>
  pick([
    () => ({ $eq: scalar() }),
    () => ({ $ne: scalar() }),
    () => ({ $gt: comparable() }),
    () => ({ $gte: comparable() }),
    () => ({ $lt: comparable() }),
    () => ({ $lte: comparable(), $gt: comparable() }),
    () => ({ $in: times(below(4), listed) }),
    () => ({ $nin: times(below(4), listed) }),
    () => ({ $exists: random() < 0.5 }),
    () => ({ $elemMatch: { $gt: below(4), $lt: below(6) } }),
    () => ({ $regex: pick(["^x", "y$", "o", "^t"]) }),
    () => ({ $not: { $gt: comparable() } }),
    () => ({ $not: { $in: [listed(), listed()] } }),
  ])();
const special = () =>
  pick([
    () => ({ [pick(["n", "s", "t"])]: { $type: pick(["string", "array"]) } }),
    () => ({ t: { $size: below(4) } }),
    () => ({ t: { $all: times(1 + below(2), () => below(5)) } }),
    () => ({ n: { $mod: [1 + below(3), below(2)] } }),
    () => ({ t: { $elemMatch: { $gte: below(4), $lt: below(6) } } }),
    () => ({ $expr: { [pick(["$gt", "$lte", "$eq"])]: [pick(["$n", { $size: "$t" }]), pick(["$_id", below(9)])] } }),
  ])();
const filter = (depth = 2) => {
  if (depth > 0 && random() < 0.35) {
    return { [pick(["$and", "$or", "$nor"])]: times(1 + below(2), () => filter(depth - 1)) };
  }
  return pick([() => ({ [path()]: scalar() }), () => ({ [path()]: condition() }), () => ({ [path()]: condition() }), special])();
};

const expression = (depth = 3) => {
  if (depth === 0 || random() < 0.3) return pick(["$n", "$t", "$s", below(9), below(9) / 2, "$missing", null, "$_id"]);
  const number = () => (random() < 0.7 ? pick(["$n", "$_id", below(7), 0.5 + below(4)]) : arithmetic(depth - 1));
  return pick([
    () => arithmetic(depth - 1),
    () => ({ [pick(["$eq", "$ne"])]: [pick(["$n", "$s"]), pick([below(9), "two"])] }),
    () => ({ [pick(["$gt", "$gte", "$lt", "$lte", "$cmp"])]: [number(), number()] }),
    () => ({ $cond: [expression(depth - 1), number(), "else"] }),
    () => ({ $cond: { if: { $gt: ["$n", number()] }, then: expression(depth - 1), else: null } }),
    () => ({ $ifNull: ["$missing", expression(depth - 1)] }),
    () => ({ [pick(["$and", "$or"])]: times(2, () => expression(depth - 1)) }),
    () => ({ $not: [expression(depth - 1)] }),
    () => ({ $concat: ["$s", "-", { $toUpper: "$s" }] }),
    () => ({ $substrCP: ["$s", below(3), below(4)] }),
    () => ({ $strLenCP: "$s" }),
    () => ({ $split: ["$s", pick(["o", "e"])] }),
    () => ({ $size: "$t" }),
    () => ({ $arrayElemAt: ["$t", below(5) - 2] }),
    () => ({ $slice: ["$t", below(5) - 2 || 1] }),
    () => ({ $concatArrays: ["$t", [below(3)]] }),
    () => ({ $reverseArray: "$t" }),
    () => ({ $in: [below(5), "$t"] }),
    () => ({ $indexOfArray: ["$t", below(5)] }),
    () => ({ $filter: { input: "$t", as: "e", cond: { $gt: ["$$e", below(4)] } } }),
    () => ({ $map: { input: "$t", as: "e", in: { $add: ["$$e", number()] } } }),
    () => ({ $reduce: { input: "$t", initialValue: 0, in: { $add: ["$$value", "$$this"] } } }),
    () => ({ $sum: "$t" }),
    () => ({ $max: ["$n", below(9)] }),
    () => ({ $range: [0, below(5)] }),
    () => ({ $setIsSubset: [[below(5)], "$t"] }),
    () => ({ $mergeObjects: [{ x: 1, y: number() }, { y: 2 }] }),
    () => ({ $isArray: expression(depth - 1) }),
    () => ({ $switch: { branches: [{ case: { $gt: ["$n", 10] }, then: "big" }, { case: { $lt: ["$n", 3] }, then: number() }], default: "mid" } }),
    () => ({ $let: { vars: { v: number() }, in: { $add: ["$$v", 1] } } }),
  ])();
};
const arithmetic = (depth) => {
  const number = () => (depth > 0 && random() < 0.4 ? arithmetic(depth - 1) : pick(["$n", "$_id", below(7), 0.5 + below(4)]));
  return pick([
    () => ({ $add: times(1 + below(3), number) }),
    () => ({ $subtract: [number(), number()] }),
    () => ({ $multiply: times(2, number) }),
    () => ({ $divide: [number(), 1 + below(4)] }),
    () => ({ $mod: [number(), 1 + below(4)] }),
    () => ({ $abs: { $subtract: [number(), number()] } }),
    () => ({ $floor: number() }),
    () => ({ $ceil: number() }),
    () => ({ $trunc: [number(), 0] }),
  ])();
};
const pipeline = () =>
  pick([
    () => [{ $match: filter() }, { $project: { _id: 1, r: [expression()] } }],
    () => [{ $set: { r: [expression()], "extra.x": [expression(1)] } }, { $project: { r: 1, extra: 1 } }],
    () => [{ $match: filter() }, { $group: { _id: pick(["$s", null, { $mod: ["$n", 3] }]), n: { $sum: 1 }, total: { $sum: arithmetic(1) }, least: { $min: "$n" }, greatest: { $max: "$n" }, mean: { $avg: "$n" } } }, { $sort: { _id: 1 } }],
    () => [{ $unwind: pick(["$t", { path: "$t", preserveNullAndEmptyArrays: true }]) }, { $group: { _id: "$t", ids: { $push: "$_id" } } }, { $sort: { _id: 1 } }],
    () => [{ $sort: { [pick(["n", "s"])]: pick([1, -1]), _id: pick([1, -1]) } }, { $skip: below(20) }, { $limit: 1 + below(20) }, { $project: { _id: 1 } }],
    () => [{ $match: filter() }, { $count: "n" }],
    () => [{ $sortByCount: "$s" }, { $sort: { _id: 1 } }],
    () => [{ $facet: { few: [{ $match: filter() }, { $count: "n" }], top: [{ $sort: { n: -1, _id: 1 } }, { $limit: 3 }, { $project: { n: 1 } }] } }],
    () => [{ $replaceRoot: { newRoot: { $mergeObjects: [{ was: "$_id" }, { n: expression(1) }] } } }],
  ])();
const update = () =>
  pick([
    () => ({ $set: { [pick(["a", "x", "y.z", "n"])]: scalar() } }),
    () => ({ $unset: { [pick(["a", "b", "s", "missing"])]: "" } }),
    () => ({ $inc: { n: below(9) - 4, fresh: 1 } }),
    () => ({ $mul: { n: below(4) } }),
    () => ({ [pick(["$min", "$max"])]: { n: below(20) } }),
    () => ({ $rename: { s: "renamed" } }),
    () => ({ $push: { t: below(5) } }),
    () => ({ $push: { t: { $each: times(below(3), () => below(5)), $sort: pick([1, -1]), $slice: below(5) - 2 } } }),
    () => ({ $push: { t: { $each: [7, 8], $position: below(3) } } }),
    () => ({ $addToSet: { t: below(5) } }),
    () => ({ $addToSet: { t: { $each: [below(5), below(5)] } } }),
    () => ({ $pull: { t: below(5) } }),
    () => ({ $pull: { t: { $gt: below(4) } } }),
    () => ({ $pullAll: { t: [below(5), below(5)] } }),
    () => ({ $pop: { t: pick([1, -1]) } }),
    () => ({ $set: { "t.$[]": 1 } }),
    () => ({ $inc: { n: 1 }, $set: { s: "both" }, $push: { t: 1 } }),
  ])();

// Returns values as comparable text. The order of fields is ignored, because mingo has an order of its own.
const canonical = (x) => {
  if (x instanceof Date) return { date: x.getTime() };
  if (Array.isArray(x)) return x.map(canonical);
  if (x !== null && typeof x === "object") return Object.fromEntries(Object.keys(x).sort().filter((key) => x[key] !== undefined).map((key) => [key, canonical(x[key])]));
  if (typeof x === "number" && !Number.isInteger(x)) return Number(x.toPrecision(12));
  if (Object.is(x, -0)) return 0;
  return x;
};
const text = (x) => JSON.stringify(canonical(x));
const attempt = async (work) => {
  try {
    return text(await work());
  } catch (error) {
    return `refused (${error.code ?? error.message})`;
  }
};

const client = new MongoClient(process.env.MONGODB_URI);
const database = client.db("mingo");
const met = new Map(KNOWN.map((known) => [known.name, 0]));
const failures = [];
const tally = { filters: 0, pipelines: 0, updates: 0, refusedByBoth: 0 };

function judge(kind, what, ours, theirs) {
  tally[kind]++;
  if (ours.startsWith("refused") && theirs.startsWith("refused")) {
    tally.refusedByBoth++;
    return;
  }
  if (ours === theirs) return;
  const known = KNOWN.find((one) => one.kinds.includes(kind) && one.holds(what, ours, theirs));
  if (known) met.set(known.name, met.get(known.name) + 1);
  else failures.push(`${kind} ${JSON.stringify(what)}\n  server: ${ours.slice(0, 400)}\n  mingo:  ${theirs.slice(0, 400)}`);
}

try {
  await database.dropDatabase();
  const documents = times(DOCUMENTS, makeDocument);
  const c = database.collection("c");
  await c.insertMany(documents);
  for (let i = 0; i < rounds; i++) {
    const f = filter();
    const ours = await attempt(async () => (await c.find(f, { projection: { _id: 1 } }).sort({ _id: 1 }).toArray()).map((one) => one._id));
    const theirs = await attempt(() => mingo.find(documents, f).all().map((one) => one._id).sort((x, y) => x - y));
    judge("filters", f, ours, theirs);
  }
  for (let i = 0; i < rounds; i++) {
    const p = pipeline();
    judge("pipelines", p, await attempt(() => c.aggregate(p).toArray()), await attempt(() => mingo.aggregate(structuredClone(documents), p)));
  }
  const u = database.collection("u");
  for (let i = 0; i < rounds; i++) {
    const change = update();
    const document = { ...structuredClone(pick(documents)), _id: i };
    const before = structuredClone(document);
    await u.insertOne(structuredClone(document));
    const ours = await attempt(async () => (await u.updateOne({ _id: i }, change), u.findOne({ _id: i })));
    const theirs = await attempt(() => (mingo.update(document, change, [], {}), document));
    judge("updates", { change, document: before }, ours, theirs);
  }
  await database.dropDatabase();
} finally {
  await client.close();
}

console.log(`seed ${seed}: ${JSON.stringify(tally)}, known differences: ${JSON.stringify(Object.fromEntries(met))}`);
for (const failure of failures.slice(0, 20)) console.log(failure);
assert.equal(failures.length, 0, `${failures.length} unexplained differences`);
if (rounds >= 1500) for (const [name, count] of met) assert.ok(count > 0, `the known difference "${name}" was not met: take it out`);
