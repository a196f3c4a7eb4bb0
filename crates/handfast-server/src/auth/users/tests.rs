use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use handfast_mql::Code;
use handfast_store::decorator::{Address, Fault, Faulty, Operation, Plan};
use handfast_store::{Applied, DocumentStore, MemoryStore, Result, Sources, StoreExt};

use super::super::role::Role;
use super::super::scram::ITERATIONS;
use super::super::user::UserName;
use super::{Change, Password, USER_EXISTS, USERS, Users, namespace};

fn users() -> (Arc<dyn DocumentStore>, Users) {
    let store: Arc<dyn DocumentStore> = Arc::new(MemoryStore::new(Sources::seeded(1)));
    (Arc::clone(&store), Users::new(store))
}

fn name(database: &str, name: &str) -> UserName {
    UserName::new(database, name).unwrap()
}

fn role(name: &str) -> Role {
    Role::new(name, "admin").unwrap()
}

async fn add(users: &Users, who: &UserName) -> Result<()> {
    users.add(who.clone(), Password::new("secret"), vec![role("read"), role("read")], None).await
}

#[tokio::test]
async fn users_are_added_changed_listed_and_removed() {
    let (_, users) = users();
    assert!(!users.any().await.unwrap());
    let (ann, bob) = (name("shop", "ann"), name("admin", "bob"));
    add(&users, &ann).await.unwrap();
    add(&users, &bob).await.unwrap();
    let again = add(&users, &ann).await.unwrap_err();
    assert_eq!((again.code(), again.message()), (USER_EXISTS, "User \"ann@shop\" already exists"));
    let found = users.find(&ann).await.unwrap().unwrap();
    assert_eq!((&found.name, &found.roles), (&ann, &vec![role("read")]));
    assert_eq!(found.credentials.iterations, ITERATIONS);
    let names: Vec<_> = users.list(None).await.unwrap().into_iter().map(|user| user.name).collect();
    assert_eq!(names, [bob.clone(), ann.clone()]);
    assert_eq!(users.list(Some("shop")).await.unwrap().len(), 1);

    users.grant(&ann, vec![role("root")]).await.unwrap();
    users.revoke(&ann, &[role("read"), role("dbOwner")]).await.unwrap();
    assert_eq!(users.find(&ann).await.unwrap().unwrap().roles, [role("root")]);
    let change = Change { password: Some(Password::new("other")), ..Change::default() };
    users.change(&ann, change).await.unwrap();
    let changed = users.find(&ann).await.unwrap().unwrap();
    assert_ne!(changed.credentials, found.credentials);
    assert_eq!((changed.id, changed.roles), (found.id, vec![role("root")]));

    users.remove(&ann).await.unwrap();
    assert!(users.find(&ann).await.unwrap().is_none());
    assert_eq!(users.remove(&ann).await.unwrap_err().message(), "User 'ann@shop' not found");
    assert_eq!(users.grant(&ann, vec![]).await.unwrap_err().code(), Code::UserNotFound);
    assert_eq!(users.remove_all("admin").await.unwrap(), 1);
    assert!(!users.any().await.unwrap());
}

#[tokio::test]
async fn the_stored_document_has_the_fields_of_mongodb_and_no_password() {
    let (store, users) = users();
    add(&users, &name("shop", "ann")).await.unwrap();
    let stored = store.find_one(&namespace(USERS).unwrap(), rawdoc! { "_id": "shop.ann" }).await.unwrap().unwrap();
    let keys: Vec<_> = stored.iter().map(|element| element.unwrap().0.as_str().to_owned()).collect();
    assert_eq!(keys, ["_id", "userId", "user", "db", "credentials", "roles"]);
    let scram = stored.get_document("credentials").unwrap().get_document("SCRAM-SHA-256").unwrap();
    assert_eq!(scram.get_i32("iterationCount").unwrap(), 15_000);
    // The lengths are those of 28 and 32 bytes in base64.
    for (key, length) in [("salt", 40), ("storedKey", 44), ("serverKey", 44)] {
        assert_eq!(scram.get_str(key).unwrap().len(), length);
    }
    assert!(!stored.as_bytes().windows(6).any(|bytes| bytes == b"secret"));
}

#[tokio::test]
async fn the_salt_of_an_unknown_user_is_kept_over_a_restart() {
    let (store, users) = users();
    let first = users.credentials_of_unknown_user("admin.eve").await.unwrap();
    let restarted = Users::new(store);
    assert_eq!(restarted.credentials_of_unknown_user("admin.eve").await.unwrap(), first);
    let (_, elsewhere) = self::users();
    assert_ne!(elsewhere.credentials_of_unknown_user("admin.eve").await.unwrap(), first);
}

#[tokio::test]
async fn each_change_increments_the_generation() {
    let (_, users) = users();
    let ann = name("shop", "ann");
    add(&users, &ann).await.unwrap();
    let before = users.generation();
    users.grant(&ann, vec![role("root")]).await.unwrap();
    users.remove(&ann).await.unwrap();
    assert_eq!(users.generation(), before + 2);
}

/// The copies of logged-in users are read again even if the outcome of a change is unknown.
#[tokio::test]
async fn a_change_of_unknown_outcome_increments_the_generation() {
    let memory = Arc::new(MemoryStore::new(Sources::seeded(1)));
    let lossy = Faulty::new(memory, Plan::seeded(1, 1000, [Fault::LoseReply]).writes_only());
    let users = Users::new(Arc::new(lossy));
    let ann = name("shop", "ann");
    for generation in 1..=4 {
        let changed = match generation {
            1 => add(&users, &ann).await,
            2 => users.grant(&ann, vec![role("root")]).await,
            3 => users.remove(&ann).await,
            _ => users.remove_all("shop").await.map(|_| ()),
        };
        assert_eq!(changed.unwrap_err().applied(), Applied::Maybe);
        assert_eq!(users.generation(), generation);
    }
}

/// A user is removed even if the connection of the administrator closes meanwhile.
#[tokio::test]
async fn a_change_whose_caller_is_cancelled_increments_the_generation() {
    let memory = Arc::new(MemoryStore::new(Sources::seeded(1)));
    let removal = Address::first(Operation::Delete);
    let slow = Arc::new(Faulty::new(memory, Plan::at_request(removal, Fault::FreezeBefore)));
    let users = Users::new(slow.clone());
    let ann = name("shop", "ann");
    add(&users, &ann).await.unwrap();
    let given_up = tokio::time::timeout(Duration::from_millis(50), users.remove(&ann)).await;
    assert!(given_up.is_err() && users.generation() == 1 && slow.frozen() == 1);
    slow.release();
    for _ in 0..1000 {
        if users.generation() == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(users.generation(), 2);
    assert!(!users.any().await.unwrap());
}

#[tokio::test]
async fn invalid_names_passwords_and_documents_are_refused() {
    let (store, users) = users();
    for (database, name) in
        [("", "a"), ("a.b", "a"), ("local", "a"), ("d", ""), ("d", "a\0b"), ("d", &*"n".repeat(257))]
    {
        assert!(UserName::new(database, name).is_err(), "{database} {name}");
    }
    let refused = users.add(name("d", "a"), Password::new(""), Vec::new(), None).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::BadValue, "the password must not be empty"));
    store.insert_one(&namespace(USERS).unwrap(), rawdoc! { "_id": "d.a", "user": "a" }).await.unwrap();
    let damaged = users.find(&name("d", "a")).await.unwrap_err();
    assert_eq!(
        damaged.message(),
        "the document of user 'd.a' cannot be read: it needs credentials for SCRAM-SHA-256, and built-in roles only"
    );
}

#[tokio::test]
async fn a_token_stands_for_its_user_until_it_expires_or_is_revoked() {
    let (store, users) = users();
    let (ann, bob) = (name("shop", "ann"), name("admin", "bob"));
    add(&users, &ann).await.unwrap();
    add(&users, &bob).await.unwrap();
    let at = bson::DateTime::from_millis;
    let made = users.add_token(&ann, "reports", at(1_000), Some(at(2_000))).await.unwrap();
    let other = users.add_token(&ann, "backup", at(1_000), None).await.unwrap();
    let of = async |text: &str, now| users.verify_token(text, at(now)).await.unwrap().map(|(user, _)| user.name);
    assert_eq!(of(&made.text, 1_999).await, Some(ann.clone()));
    assert_eq!(of(&made.text, 2_000).await, None, "it has expired");
    assert_eq!(of(&other.text, i64::MAX).await, Some(ann.clone()));
    for wrong in [
        "",
        "hft_",
        "hft__",
        made.text.strip_prefix('h').unwrap(),
        &format!("{}0", made.text),
        &made.text.replace('_', "-"),
    ] {
        assert_eq!(of(wrong, 1_000).await, None, "{wrong}");
    }
    let (start, end) = made.text.split_at(made.text.len() - 1);
    let changed = if end == "0" { "1" } else { "0" };
    assert_eq!(of(&format!("{start}{changed}"), 1_000).await, None, "the id alone is not enough");

    // Nothing that is stored or shown has the secret.
    let stored = store.find_one(&namespace(USERS).unwrap(), rawdoc! { "_id": ann.id() }).await.unwrap().unwrap();
    let secret = made.text.rsplit('_').next().unwrap();
    assert!(!format!("{stored:?} {made:?}").contains(secret));
    let user = users.find(&ann).await.unwrap().unwrap();
    assert!(!format!("{:?}", user.to_shown(true)).contains("tokens"), "usersInfo");

    // A change of the user keeps them, and its removal removes them.
    users.change(&ann, Change { roles: Some(vec![role("readWrite")]), ..Change::default() }).await.unwrap();
    assert_eq!(of(&other.text, 1_000).await, Some(ann.clone()));
    let generation = users.generation();
    let unused = users.add_token(&ann, "unused", at(0), None).await.unwrap();
    assert!(!users.revoke_token(&ann, "none").await.unwrap());
    assert_eq!(users.generation(), generation, "no login has changed");
    assert!(users.revoke_token(&ann, &unused.token.id).await.unwrap());
    assert!(users.revoke_token(&ann, &other.token.id).await.unwrap() && users.generation() > generation);
    assert_eq!(of(&other.text, 1_000).await, None, "it is revoked");
    assert!(!users.revoke_token(&ann, &other.token.id).await.unwrap());
    assert!(!users.revoke_token(&bob, &made.token.id).await.unwrap(), "it is another user's");
    assert_eq!(of(&made.text, 1_000).await, Some(ann.clone()));
    users.remove(&ann).await.unwrap();
    assert_eq!(of(&made.text, 1_000).await, None);
    let missing = users.add_token(&ann, "x", at(0), None).await.unwrap_err();
    assert_eq!(missing.code(), Code::UserNotFound);
    let long = "x".repeat(257);
    for (label, expires_at) in [("", None), (&*long, None), ("x", Some(at(1_000)))] {
        let refused = users.add_token(&bob, label, at(1_000), expires_at).await.unwrap_err();
        assert_eq!(refused.code(), Code::BadValue, "{label}");
    }
}

#[tokio::test]
async fn a_user_has_a_limited_number_of_tokens_that_are_valid() {
    let (_, users) = users();
    let ann = name("shop", "ann");
    add(&users, &ann).await.unwrap();
    let at = bson::DateTime::from_millis;
    for _ in 0..super::TOKENS_MAX {
        users.add_token(&ann, "x", at(0), Some(at(10))).await.unwrap();
    }
    assert_eq!(users.add_token(&ann, "x", at(9), None).await.unwrap_err().code(), Code::BadValue);
    users.add_token(&ann, "x", at(10), None).await.unwrap();
    assert_eq!(users.find(&ann).await.unwrap().unwrap().tokens.len(), 1, "the others have expired");
}
