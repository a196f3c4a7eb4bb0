// Solution 5: versions.
//
// A tree of documents changes at once: the new nodes are inserted under a higher version, leaves first, the root last. Readers
// take the version from the root and ignore everything above it, so half a change is never seen. A unique index over
// {itemId, version} lets one writer have each version.

const assert = require("assert");
db = db.getSiblingDB("example_versioned_documents");
db.dropDatabase();

// What a statement is refused with. (The shell makes statements wait by itself, but not inside `assert.throws`.)
const refusal = (statement) => {
  try {
    statement();
  } catch (error) {
    return error;
  }
  return null;
};

assert.equal(db.item.createIndex({ itemId: 1, version: 1 }, { unique: true }), "itemId_1_version_1");
db.item.insertMany([
  { itemId: "leaf-1", version: 1, text: "one" },
  { itemId: "leaf-2", version: 1, text: "two" },
  { itemId: "root", version: 1, children: ["leaf-1", "leaf-2"] },
]);

// The newest version of each item that is not above the root's.
const read = () => {
  const root = db.item.find({ itemId: "root" }).sort({ version: -1 }).limit(1).toArray()[0];
  return root.children.map(
    (child) => db.item.find({ itemId: child, version: { $lte: root.version } }).sort({ version: -1 }).limit(1).toArray()[0].text,
  );
};
assert.deepEqual(read(), ["one", "two"]);

// Version 2: a writer inserts the children. Until the root is there, nobody sees them.
const next = db.item.find({ itemId: "root" }).sort({ version: -1 }).limit(1).toArray()[0].version + 1;
db.item.insertOne({ itemId: "leaf-1", version: next, text: "ONE" });
assert.deepEqual(read(), ["one", "two"]);
db.item.insertOne({ itemId: "leaf-3", version: next, text: "three" });
assert.deepEqual(read(), ["one", "two"]);

// A second writer wants the same version of the same item, and is refused.
assert.equal(refusal(() => db.item.insertOne({ itemId: "leaf-1", version: next, text: "other" })).code, 11000);

db.item.insertOne({ itemId: "root", version: next, children: ["leaf-1", "leaf-2", "leaf-3"] });
assert.deepEqual(read(), ["ONE", "two", "three"]);

// An unfinished transaction may stay and be ignored, or be cleaned up.
db.item.insertOne({ itemId: "leaf-2", version: next + 1, text: "never finished" });
assert.deepEqual(read(), ["ONE", "two", "three"]);
const version = db.item.find({ itemId: "root" }).sort({ version: -1 }).limit(1).toArray()[0].version;
assert.equal(db.item.deleteMany({ version: { $gt: version } }).deletedCount, 1);

const plan = db.item.find({ itemId: "leaf-1", version: { $lte: version } }).sort({ version: -1 }).explain();
assert.match(JSON.stringify(plan.queryPlanner.winningPlan), /IXSCAN.*itemId_1_version_1/);

db.dropDatabase();
print("ok 05-versioned-documents");
