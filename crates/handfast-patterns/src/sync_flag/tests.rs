use bson::{Bson, DateTime, Document, doc};
use handfast_store::{ManualClock, MemoryStore, Namespace, Sources};

use super::comparison::{CopyState, compare};
use super::link::check_all;
use super::record::{Copy, FINAL_VERSION, Main};
use super::requests::{self, Step};
use super::{Link, MainEvent, MainState, OnDelete, Stale, SyncFields};
use crate::steps::{Request, Steps};

fn namespace(collection: &str) -> Namespace {
    Namespace::new("site", collection).expect("a name")
}

fn link() -> Link {
    Link::new(namespace("comments"), "user").field("profile.name", "userName")
}

fn main(document: Document) -> Main {
    let steps = Steps::new(std::sync::Arc::new(MemoryStore::new(Sources::seeded(1))), namespace("users"));
    Main::read(&steps, document, &SyncFields::default()).expect("a main document")
}

#[test]
fn the_table_of_states() {
    let mut arrows = Vec::new();
    for state in MainState::ALL {
        for event in [MainEvent::Changed, MainEvent::Deleted, MainEvent::Carried] {
            arrows.extend(state.after(event).map(|next| format!("{state} -{event:?}-> {next}")));
        }
    }
    let expected = [
        "settled -Changed-> syncing",
        "settled -Deleted-> deleting",
        "syncing -Changed-> syncing",
        "syncing -Deleted-> deleting",
        "syncing -Carried-> settled",
        "deleting -Carried-> gone",
    ];
    assert_eq!(arrows, expected);
}

/// The copy has the name John and version 6; the main documents of the table differ from it.
#[test]
fn copies_are_compared_with_their_main_documents() {
    let now = Bson::DateTime(ManualClock::START);
    let name = |name: &str, version: i64| doc! { "_id": 1, "profile": { "name": name }, "syncVersion": version };
    let flagged = |mut document: Document| {
        document.insert("syncing", now.clone());
        document
    };
    let deleted = |mut document: Document| {
        document.insert("syncDeleted", true);
        flagged(document)
    };
    let check = |copy: Document, mains: Option<Document>, expected: CopyState| {
        let copy = Copy::read(copy, &link()).expect("it names a user");
        let mains = mains.map(main);
        assert_eq!(compare(&link(), &copy, mains.as_ref()), expected, "{copy:?} {mains:?}");
    };
    let john = || doc! { "_id": 9, "user": 1, "userName": "John", "userVersion": 6 };
    let mut new = john();
    new.insert("userSyncing", now.clone());

    check(john(), Some(name("John", 6)), CopyState::Equal);
    check(john(), Some(name("John", 7)), CopyState::Equal);
    check(john(), Some(name("Mary", 7)), CopyState::Stale(Stale::Behind));
    check(john(), Some(name("Mary", 6)), CopyState::Stale(Stale::Different));
    check(john(), Some(doc! { "_id": 1, "syncVersion": 6 }), CopyState::Stale(Stale::Different));
    check(john(), Some(name("John", 5)), CopyState::Stale(Stale::Ahead));
    check(john(), Some(flagged(name("Mary", 7))), CopyState::InFlight);
    check(new.clone(), Some(name("Mary", 7)), CopyState::InFlight);
    check(new, Some(name("John", 6)), CopyState::Equal);
    check(john(), Some(deleted(name("John", 7))), CopyState::InFlight);
    check(john(), None, CopyState::Stale(Stale::Orphan));
    check(doc! { "_id": 9, "user": 1, "userVersion": FINAL_VERSION }, None, CopyState::Equal);
    check(doc! { "_id": 9, "user": 1 }, None, CopyState::Stale(Stale::Orphan));
    check(doc! { "_id": 9, "user": 1, "userName": "John" }, Some(name("John", 0)), CopyState::Equal);
    check(doc! { "_id": 9, "user": 1, "userVersion": "six" }, Some(name("John", 6)), CopyState::Stale(Stale::Behind));
}

#[test]
fn what_names_no_main_document_is_no_copy() {
    assert_eq!(Copy::read(doc! { "_id": 9 }, &link()), None);
    assert_eq!(Copy::read(doc! { "_id": 9, "user": null }, &link()), None);
}

#[test]
fn a_flag_is_taken_away_by_its_date_and_version() {
    let seen = main(doc! { "_id": 1, "syncVersion": 7, "syncing": ManualClock::START });
    let filter = doc! { "_id": 1, "syncVersion": 7_i64, "syncing": ManualClock::START };
    let unset = doc! { "$unset": { "syncing": "" } };
    assert_eq!(
        requests::finish(&SyncFields::default(), &seen),
        Some(Step::Update(Request { filter: filter.clone(), update: unset }))
    );
    let mut deleted = seen.clone();
    deleted.state = MainState::Deleting;
    let mut filter = filter;
    filter.insert("syncDeleted", true);
    assert_eq!(requests::finish(&SyncFields::default(), &deleted), Some(Step::Remove(filter)));
    let settled = main(doc! { "_id": 1, "syncVersion": 7 });
    assert_eq!(requests::finish(&SyncFields::default(), &settled), None);
}

#[test]
fn links_that_cannot_work_are_refused() {
    let name = |link: Link| link.field("name", "userName");
    let user = || Link::new(namespace("comments"), "user");
    let refused = [
        vec![],
        vec![user()],
        vec![user().field("name", "user")],
        vec![user().field("name", "_id")],
        vec![user().field("syncing", "changed")],
        vec![user().field("syncVersion.x", "changed")],
        vec![Link::new(namespace("comments"), "user.id").field("name", "user")],
        vec![user().field("name", "a").field("name", "a.b")],
        vec![name(user()), name(Link::new(namespace("comments"), "editor"))],
        vec![user().field("name", "editor"), Link::new(namespace("comments"), "editor").field("name", "editorName")],
        vec![Link::new(namespace("comments"), "editor").field("name", "editorName"), user().field("name", "editor.id")],
        vec![name(user()).with_fields("userName", "flag")],
        vec![name(user()).on_delete(OnDelete::Set(doc! { "other": 1 }))],
    ];
    for links in refused {
        assert!(check_all(&links, &SyncFields::default()).is_err(), "{links:?}");
    }
    let editor = Link::new(namespace("comments"), "editor").field("name", "editorName");
    let elsewhere = name(Link::new(namespace("likes"), "user"));
    let deleted = name(user()).on_delete(OnDelete::Set(doc! { "userName": "somebody" }));
    check_all(&[deleted, editor, elsewhere], &SyncFields::default()).expect("they write to different places");
}

#[test]
fn copies_have_no_fields_that_change_after_them() {
    let link = link().expression("all", "$$ROOT").expect("an expression");
    let main = main(
        doc! { "_id": 1, "name": "john", "syncing": DateTime::from_millis(5), "syncVersion": 7, "syncTokens": ["t"] },
    );
    let update = requests::carry(&link, &main).update;
    let all = update.get_document("$set").unwrap().get_document("all").unwrap();
    assert_eq!(*all, doc! { "_id": 1, "name": "john" });
}

#[test]
fn an_expression_says_what_a_copy_is() {
    let initial = doc! { "$toUpper": { "$substrCP": ["$name", 0, 1] } };
    let link = link().expression("userInitial", initial).expect("an expression");
    let value = |main: Document| link.values(&main).pop().expect("the computed one").1;
    assert_eq!(value(doc! { "name": "john" }), Some("J".into()));
    // The computation fails on a document.
    assert_eq!(value(doc! { "name": doc! { "first": "john" } }), None);
    let link = link.expression("nick", "$nick").expect("an expression");
    assert_eq!(link.values(&doc! { "nick": 7 }).pop(), Some(("nick".to_owned(), Some(7.into()))));
    assert_eq!(link.values(&doc! {}).pop(), Some(("nick".to_owned(), None)));
    for (wrong, why) in [
        (Bson::from("$$NOW"), "time or chance"),
        (doc! { "$rand": {} }.into(), "time or chance"),
        (doc! { "$none": 1 }.into(), "is not an expression"),
    ] {
        let refused = Link::new(namespace("comments"), "user").expression("copy", wrong);
        assert!(refused.is_err_and(|error| error.to_string().contains(why)), "{why}");
    }
}
