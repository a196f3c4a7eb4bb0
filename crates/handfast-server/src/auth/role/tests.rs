use super::*;

fn allows(role: &str, on: &str, action: Action, database: &str) -> bool {
    Role::new(role, on).unwrap().allows(action, database)
}

#[test]
fn each_role_allows_its_actions() {
    for (role, on, action, database, expected) in [
        ("read", "shop", Find, "shop", true),
        ("read", "shop", List, "shop", true),
        ("read", "shop", Write, "shop", false),
        ("read", "shop", Structure, "shop", false),
        ("read", "shop", Find, "other", false),
        ("read", "admin", Find, "shop", false),
        ("readWrite", "shop", Write, "shop", true),
        ("readWrite", "shop", Structure, "shop", true),
        ("readWrite", "shop", DropDatabase, "shop", false),
        ("readWrite", "shop", ManageUsers, "shop", false),
        ("readWrite", "shop", Monitor, "shop", false),
        ("dbAdmin", "shop", Find, "shop", false),
        ("dbAdmin", "shop", DropDatabase, "shop", true),
        ("userAdmin", "shop", ManageUsers, "shop", true),
        ("userAdmin", "shop", ManageUsers, "admin", false),
        ("dbOwner", "shop", ManageUsers, "shop", true),
        ("dbOwner", "shop", ListDatabases, "shop", false),
        ("readAnyDatabase", "admin", Find, "shop", true),
        ("readAnyDatabase", "admin", Find, "local", false),
        ("readAnyDatabase", "admin", ListDatabases, "", true),
        ("readAnyDatabase", "admin", Write, "shop", false),
        ("readWriteAnyDatabase", "admin", Write, "shop", true),
        ("readWriteAnyDatabase", "admin", ReadUsers, "admin", false),
        ("userAdminAnyDatabase", "admin", ManageUsers, "admin", true),
        ("clusterMonitor", "admin", Monitor, "", true),
        ("clusterMonitor", "admin", Control, "", false),
        ("clusterAdmin", "admin", Control, "", true),
        ("clusterAdmin", "admin", Find, "shop", false),
        ("root", "admin", ReadUsers, "admin", true),
        ("root", "admin", Write, "local", true),
        ("clusterAdmin", "admin", BackUp, "", false),
        ("dbOwner", "admin", BackUp, "", false),
        ("root", "admin", BackUp, "", true),
    ] {
        assert_eq!(allows(role, on, action, database), expected, "{role}@{on} {action:?} {database}");
    }
}

#[test]
fn unknown_roles_are_refused() {
    for (role, on) in
        [("", "admin"), ("Root", "admin"), ("root", "shop"), ("readAnyDatabase", "shop"), ("mine", "shop")]
    {
        let error = Role::new(role, on).unwrap_err();
        assert_eq!(error.code(), Code::RoleNotFound);
        assert_eq!(error.message(), format!("Could not find role: {role}@{on}"));
    }
    assert_eq!(Role::new("read", "a.b").unwrap_err().code(), Code::InvalidNamespace);
    assert_eq!(Role::names().count(), BUILT_IN_ROLES.len());
}
