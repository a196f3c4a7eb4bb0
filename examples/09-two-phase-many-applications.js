// Many applications: each claims a transaction with one findAndModify, and later looks only at its own.

const assert = require("assert");
db = db.getSiblingDB("example_two_phase_many_applications");
db.dropDatabase();

for (let i = 1; i <= 3; i++) {
  db.transactions.insert({ _id: i, source: "A", destination: "B", value: i, state: "initial", lastModified: new Date(2020, 0, i) });
}

let t;
t = db.transactions.findAndModify(
  {
    query: { state: "initial", application: { $exists: false } },
    update:
    {
      $set: { state: "pending", application: "App1" },
      $currentDate: { lastModified: true }
    },
    new: true
  }
)
assert.deepEqual([t.state, t.application], ["pending", "App1"]);
assert.ok(t.lastModified > new Date(2021, 0, 1));

// A second application gets another one, a third the last, a fourth none.
const claim = (application) =>
  db.transactions.findAndModify({
    query: { state: "initial", application: { $exists: false } },
    update: { $set: { state: "pending", application }, $currentDate: { lastModified: true } },
    new: true,
  });
const ids = [t._id, claim("App2")._id, claim("App3")._id];
assert.deepEqual(ids.sort(), [1, 2, 3]);
assert.equal(claim("App4"), null);

// App1 failed; its recovery looks for its own transactions.
db.transactions.updateMany({}, { $set: { lastModified: new Date(Date.now() - 3600 * 1000) } });
var dateThreshold = new Date();
dateThreshold.setMinutes(dateThreshold.getMinutes() - 30);
const mine = db.transactions.find(
  {
    application: "App1",
    state: "pending",
    lastModified: { $lt: dateThreshold }
  }
).toArray();
assert.deepEqual(mine.map((one) => one.application), ["App1"]);
assert.equal(db.transactions.countDocuments({ application: { $exists: true } }), 3);

db.dropDatabase();
print("ok 09-two-phase-many-applications");
