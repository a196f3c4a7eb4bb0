//! What an application has said of its links is there for those who carry its changes.

use handfast_patterns::sync_flag::DeclaredLink;

use super::*;

fn link(world: &World) -> Link {
    Link::new(world.place("comments"), "user").field("name", "userName")
}

async fn declared(world: &World, links: impl IntoIterator<Item = Link>) -> Vec<DeclaredLink> {
    let options = SyncFlagOptions::new(links);
    let users = world.place("users");
    SyncFlag::open(Arc::clone(&world.store), users.clone(), world.sources.clone(), options).await.unwrap();
    SyncFlag::declared(Arc::clone(&world.store), &users).await.unwrap().expect("declared")
}

#[tokio::test]
async fn the_last_who_opened_has_declared() {
    let world = World::in_memory();
    let users = world.place("users");
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
    let same = Link::new(world.place("comments"), "user").expression("userInitial", initial()).unwrap();
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
    check(Link::new(world.place("likes"), "user").field("name", "userName"), "no such link");
}
