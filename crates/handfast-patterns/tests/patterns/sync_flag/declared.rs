//! Processes that complete changes of an application read its links from the record.

use std::sync::Arc;
use std::time::Duration;

use bson::{doc, rawdoc};
use handfast_patterns::sync_flag::{DeclaredLink, SyncFields, SyncFlag};
use handfast_patterns::{Error, Link, OnDelete, Result, SyncFlagOptions};
use handfast_store::StoreExt;

use super::{HOUR, renamed};
use crate::crash::World;

fn link(world: &World) -> Link {
    Link::new(world.namespace("comments"), "user").field("name", "userName")
}

async fn declared(world: &World, links: impl IntoIterator<Item = Link>) -> Vec<DeclaredLink> {
    let options = SyncFlagOptions::new(links);
    let users = world.namespace("users");
    SyncFlag::open_with(Arc::clone(&world.store), users.clone(), world.sources.clone(), options).await.unwrap();
    SyncFlag::declared(Arc::clone(&world.store), &users).await.unwrap().expect("declared").links
}

#[tokio::test]
async fn the_first_process_declares_the_links() {
    let world = World::in_memory();
    let users = world.namespace("users");
    assert!(SyncFlag::declared(Arc::clone(&world.store), &users).await.unwrap().is_none());
    SyncFlag::attach(
        Arc::clone(&world.store),
        users.clone(),
        world.sources.clone(),
        SyncFlagOptions::new([link(&world)]),
    )
    .unwrap();
    assert!(
        SyncFlag::declared(Arc::clone(&world.store), &users).await.unwrap().is_none(),
        "who attaches declares nothing"
    );
    for on_delete in
        [OnDelete::Unset, OnDelete::Remove, OnDelete::Keep, OnDelete::Set(doc! { "userName": { "is": "gone" } })]
    {
        let world = World::in_memory();
        let found = declared(&world, [link(&world).on_delete(on_delete.clone())]).await;
        assert_eq!((found.len(), found[0].link().deleted()), (1, &on_delete));
        assert_eq!(found[0].differs_from(&link(&world).on_delete(on_delete)), None);
    }
}

#[tokio::test]
async fn whatever_differs_is_found() {
    let world = World::in_memory();
    let initial = || doc! { "$toUpper": { "$substrCP": ["$name", 0, 1] } };
    let whole = |link: Link| link.expression("userInitial", initial()).unwrap();
    let rule = || OnDelete::Set(doc! { "userName": "somebody" });
    let found = declared(&world, [whole(link(&world)).on_delete(rule()).computed("length", |_| None)]).await;
    assert_eq!(found[0].functions(), ["length"]);
    let says_length = |link: Link| link.field("length", "length");
    let same = Link::new(world.namespace("comments"), "user").expression("userInitial", initial()).unwrap();
    let same = says_length(same.field("name", "userName").on_delete(rule()));
    assert_eq!(found[0].differs_from(&same), None, "the order of fields says nothing");
    let check = |link: Link, why: &str| {
        let differs = found[0].differs_from(&link).unwrap_or_default();
        assert!(differs.contains(why), "{differs:?} is to say {why}");
    };
    check(whole(link(&world)).on_delete(rule()), "length is computed by a function");
    check(says_length(whole(link(&world))), "onDelete is declared as Set");
    check(says_length(link(&world).on_delete(rule())), "what is copied is declared as");
    check(says_length(whole(link(&world)).on_delete(rule())).field("nick", "userNick"), "what is copied");
    let other = link(&world).expression("userInitial", doc! { "$toLower": "$name" }).unwrap();
    check(says_length(other.on_delete(rule())), "userInitial");
    check(same.clone().with_fields("version", "userSyncing"), "version is declared as");
    check(Link::new(world.namespace("likes"), "user").field("name", "userName"), "no such link");
}

async fn opened(world: &World, options: SyncFlagOptions) -> Result<SyncFlag> {
    SyncFlag::open_with(Arc::clone(&world.store), world.namespace("users"), world.sources.clone(), options).await
}

/// The error names each setting, as recorded and as given. Nothing is done, and no index is created.
#[tokio::test]
async fn other_settings_are_refused_by_name() {
    let world = World::in_memory();
    let options = || {
        let nick = link(&world).field("nick", "userNick");
        SyncFlagOptions::new([nick, Link::new(world.namespace("likes"), "user").field("name", "userName")])
    };
    opened(&world, options()).await.unwrap();
    let renamed = SyncFields { syncing: "flag".to_owned(), ..SyncFields::default() };
    let fewer = SyncFlagOptions { links: options().links.into_iter().take(1).collect(), ..options() };
    for (other, text) in [
        (fewer, "links is recorded as [{ \"collection\": \"comments\","),
        (SyncFlagOptions { tokens_max: 3, ..options() }, "tokensMax is recorded as 20, given as 3"),
        (
            SyncFlagOptions { fields: renamed, ..options() },
            "fields.syncing is recorded as \"syncing\", given as \"flag\"",
        ),
    ] {
        let error = opened(&world, other).await.err().expect("other settings");
        assert!(matches!(error, Error::OtherSettings { .. }) && error.to_string().contains(text), "{error}");
    }
    let declared = SyncFlag::declared(Arc::clone(&world.store), &world.namespace("users")).await.unwrap().unwrap();
    assert_eq!(declared.links.len(), 2, "the record is as it was");
    // The order of links and fields has no meaning; each process chooses its own threshold.
    let mut other = SyncFlagOptions { abandoned_after: Duration::ZERO, ..options() };
    other.links.reverse();
    other.links[1] = Link::new(world.namespace("comments"), "user").field("nick", "userNick").field("name", "userName");
    opened(&world, other).await.unwrap();
}

/// Links that an earlier build has recorded are in effect until other links are recorded.
#[tokio::test]
async fn links_of_earlier_builds_are_read_and_compared() {
    let world = World::in_memory();
    let earlier = doc! { "_id": "links", "links": [{
        "database": world.namespace("users").database(), "collection": "comments", "key": "user", "version": "userVersion",
        "syncing": "userSyncing", "copied": [{ "copy": "userName", "field": "name" }], "onDelete": "unset",
    }] };
    let earlier = bson::RawDocumentBuf::try_from(&earlier).unwrap();
    world.store.insert_one(&world.namespace("users.links"), earlier).await.unwrap();
    let declared = SyncFlag::declared(Arc::clone(&world.store), &world.namespace("users")).await.unwrap().unwrap();
    assert_eq!((declared.links.len(), declared.tokens_max), (1, None));
    let removed = link(&world).on_delete(OnDelete::Remove);
    let error = opened(&world, SyncFlagOptions::new([removed.clone()])).await.err().expect("other links").to_string();
    assert!(error.contains("users.links records other settings: links is recorded as [{"), "{error}");
    opened(&world, SyncFlagOptions::new([link(&world)])).await.unwrap();
    let changed = SyncFlagOptions::new([removed]);
    SyncFlag::change_settings(Arc::clone(&world.store), world.namespace("users"), &changed).await.unwrap();
    opened(&world, changed).await.unwrap();
}

#[tokio::test]
async fn settings_are_not_changed_under_the_flags_that_they_are_the_meaning_of() {
    let world = World::in_memory();
    world.store.insert_one(&world.namespace("users"), rawdoc! { "_id": 1, "name": "John" }).await.unwrap();
    let change = async |options: &SyncFlagOptions| {
        SyncFlag::change_settings(Arc::clone(&world.store), world.namespace("users"), options).await
    };
    let old = SyncFlagOptions::new([link(&world)]);
    let new = SyncFlagOptions::new([link(&world).field("nick", "userNick")]);
    let fields = SyncFields { version: "v".to_owned(), ..SyncFields::default() };
    change(&SyncFlagOptions { fields: fields.clone(), ..old.clone() }).await.unwrap();
    change(&old).await.unwrap();
    let flag = opened(&world, old.clone()).await.unwrap();
    let _ = flag.within(Arc::clone(&world.store)).begin(flag.token(), 1, &renamed("Mary")).await.unwrap();
    for (other, why) in [
        (new.clone(), "carry them first (sweep)"),
        (SyncFlagOptions { fields, ..old }, "has main documents by other names of fields"),
    ] {
        let error = change(&other).await.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    world.clock.advance(2 * HOUR);
    assert_eq!(flag.sweep(10).await.unwrap().done, 1);
    change(&new).await.unwrap();
    opened(&world, new).await.unwrap();
}
