// Logins and roles through mongosh, which has logged in as "boss"; see login.py.

const assert = require("assert");

const refusal = (statement) => {
  try {
    statement();
  } catch (error) {
    return error;
  }
  return null;
};

assert.deepEqual(db.runCommand({ connectionStatus: 1 }).authInfo.authenticatedUsers, [{ user: "boss", db: "admin" }]);
const shop = db.getSiblingDB("mongosh_login");
shop.c.insertOne({ _id: 1 });
shop.createUser({ user: "ann", pwd: "secret", roles: ["read", { role: "readWrite", db: "mongosh_other" }] });
assert.equal(shop.getUser("ann").roles.length, 2);
assert.deepEqual(shop.getUsers().users.map((user) => user.user), ["ann"]);
shop.grantRolesToUser("ann", ["readWrite"]);
shop.revokeRolesFromUser("ann", ["readWrite"]);
shop.changeUserPassword("ann", "new secret");
assert.equal(refusal(() => shop.createUser({ user: "ann", pwd: "x", roles: [] })).code, 51003);
assert.equal(shop.auth("ann", "new secret").ok, 1);
assert.equal(shop.c.countDocuments(), 1);
assert.equal(refusal(() => shop.c.insertOne({})).code, 13);
assert.equal(refusal(() => shop.auth("ann", "secret")).code, 18);
db.getSiblingDB("admin").auth("boss", process.env.BOSS_PASSWORD);
shop.dropUser("ann");
shop.dropDatabase();
