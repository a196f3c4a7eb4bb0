use std::sync::Arc;

use bson::rawdoc;
use handfast_mql::{Code, Collation};

use super::{KEPT_TOGETHER, Part, Route, Routed, Routing, ensure_alone};
use crate::conformance::{Report, Subject, run};
use crate::decorator::{Address, Fault, Faulty, Operation, Plan};
use crate::{
    Aggregate, Applied, BatchLimit, CollectionOptions, DocumentStore, ErrorClass, Insert, MemoryStore,
    ModifyCollection, ModifyView, Namespace, Result, Sources, StoreExt, Ticket, ViewDefinition,
};

fn routes(texts: &[&str]) -> Vec<Route> {
    texts.iter().map(|text| text.parse().expect("a route")).collect()
}

fn named(name: &str) -> Namespace {
    let (database, collection) = name.split_once('.').expect("a collection");
    Namespace::new(database, collection).expect("a name")
}

/// Two stores in memory, which can be joined to one.
struct Two {
    main: Arc<MemoryStore>,
    side: Arc<MemoryStore>,
}

impl Two {
    fn new() -> Two {
        // The seeds differ, so that ids of collections differ between the stores as they do between servers.
        Two {
            main: Arc::new(MemoryStore::new(Sources::seeded(1))),
            side: Arc::new(MemoryStore::new(Sources::seeded(2))),
        }
    }

    fn parts(&self) -> Vec<Part> {
        vec![Part::new("main", self.main.clone()), Part::new("side", self.side.clone())]
    }

    fn routed(&self, texts: &[&str]) -> Routed {
        Routed::new(self.parts(), &routes(texts), Sources::seeded(3)).expect("a rule")
    }

    async fn opened(&self, texts: &[&str]) -> Result<Routed> {
        Routed::open(self.parts(), &routes(texts), Sources::seeded(3)).await
    }
}

fn conforms(texts: &'static [&'static str], lacks: &[&'static str]) -> Report {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("runtime");
    runtime.block_on(run(async || {
        Subject::new(Arc::new(Two::new().routed(texts))).with_snapshot_cursors().without(lacks.iter().copied())
    }))
}

#[tokio::test]
async fn a_view_reads_only_collections_of_its_store() {
    let routed = Two::new().routed(&["*=main", "db.far=side"]);
    let view = |on: &str| {
        let view = ViewDefinition { on: on.to_owned(), pipeline: Vec::new(), collation: None };
        CollectionOptions { view: Some(view), ..CollectionOptions::default() }
    };
    let error = routed.create_collection(&named("db.v"), view("far")).await.expect_err("a refusal");
    assert_eq!(error.code(), Code::NotImplemented);
    routed.create_collection(&named("db.v"), view("near")).await.expect("a view");
    let on = |on: &str| ModifyView { on: Some(on.to_owned()), pipeline: None };
    let modify = |name: &str| ModifyCollection { view: on(name), ..ModifyCollection::new(named("db.v")) };
    assert_eq!(routed.modify_collection(modify("far")).await.expect_err("a refusal").code(), Code::NotImplemented);
    routed.modify_collection(modify("other")).await.expect("a view");
}

#[tokio::test]
async fn stages_that_run_over_both_stores_have_the_collation_of_their_source() {
    let routed = Two::new().routed(&["*=main", "db.far=side"]);
    let collation = Collation::parse(&rawdoc! { "locale": "en", "strength": 2 }).expect("valid");
    let collation = collation.map(|collation| collation.document().to_owned());
    let view = ViewDefinition { on: "bytes".to_owned(), pipeline: Vec::new(), collation: collation.clone() };
    let view = CollectionOptions { view: Some(view), ..CollectionOptions::default() };
    routed.create_collection(&named("db.v"), view).await.expect("a view");
    let folded = CollectionOptions { collation, ..CollectionOptions::default() };
    routed.create_collection(&named("db.folded"), folded).await.expect("a collection");
    for name in ["db.bytes", "db.folded", "db.far"] {
        let documents = vec![rawdoc! { "_id": 1, "s": "a" }, rawdoc! { "_id": 2, "s": "A" }];
        routed.insert(Insert::new(named(name), documents)).await.expect("inserted");
    }
    for (name, groups) in [("db.v", 1), ("db.folded", 1), ("db.bytes", 2)] {
        let stages = vec![rawdoc! { "$unionWith": "far" }, rawdoc! { "$group": { "_id": "$s" } }];
        let found = routed.aggregate_all(Aggregate::new(named(name), stages)).await.expect("an answer");
        assert_eq!(found.len(), groups, "{name}: {found:?}");
    }
}

/// The routes put all collections of the suite but the first one into the other store.
#[test]
fn stores_with_different_collections_of_one_database_conform() {
    let report = conforms(
        &["*=main", "conformance.other=side", "conformance.target=side", "conformance.people=side", "zoo=side"],
        &[],
    );
    assert!(report.is_clean() && report.refused.is_empty(), "{report}");
}

/// The collection of most cases is in the other store: only renames that would move it are refused.
#[test]
fn stores_conform_if_one_has_only_the_first_collection() {
    let report = conforms(&["*=main", "conformance.c=side"], &["renaming across stores"]);
    assert!(report.is_clean(), "{report}");
    let refused: Vec<_> = report.refused.iter().map(|(case, _)| *case).collect();
    let renames = [
        "rename_moves_documents_and_indexes",
        "rename_to_another_database",
        "rename_of_a_missing_collection_is_refused",
        "rename_onto_an_existing_collection_is_refused",
        "rename_may_drop_its_target",
        "concurrent_rename_beside_writes_loses_nothing",
    ];
    assert_eq!(refused, renames, "{report}");
}

#[test]
fn the_most_specific_route_applies() {
    let routing = Routing::new(&["a", "b", "c"], &routes(&["shop=b", "shop.orders=c", "*=a"])).expect("a rule");
    let check = |name: &str, part: usize| assert_eq!(routing.part(&named(name)), part, "{name}");
    check("shop.orders", 2);
    check("shop.orders.old", 1);
    check("shop.items", 1);
    check("bank.orders", 0);
    for own in KEPT_TOGETHER {
        check(&format!("{own}.orders"), 0);
    }
    assert_eq!(routing.parts("shop").into_iter().collect::<Vec<_>>(), [1, 2]);
    let texts: Vec<_> = routing.routes().iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["*=a", "shop=b", "shop.orders=c"]);
}

#[test]
fn an_incomplete_rule_is_refused_with_its_fault() {
    let check = |names: &[&str], texts: &[&str], why: &str| {
        let refused = Routing::new(names, &routes(texts)).expect_err(why);
        assert!(refused.message().contains(why), "{refused}");
        assert_eq!(refused.code(), Code::BadValue);
    };
    check(&["a", "b"], &["shop=b"], "no route names the store of all other collections: add one such as *=a");
    check(&["a", "b"], &["*=a", "shop=x"], "the route shop=x names an unknown store; the stores are a, b");
    check(&["a", "b"], &["*=a", "shop.c=b", "shop.c=a"], "two routes for shop.c");
    check(&["a", "b"], &["*=a", "shop=b", "shop=b"], "two routes for shop");
    check(&["a", "b"], &["*=a", "*=b"], "two routes for *");
    check(&["a", "b"], &["*=a"], "no route names the store 'b'");
    check(&["a", "a"], &["*=a"], "two stores are named 'a'");
    check(&["a", "b"], &["*=a", "handfast.oracle=b"], "the database 'handfast' stays in the store of the route *");
    check(&["a", "b"], &["*=a", "config=b"], "the database 'config' stays in the store of the route *");
    for text in ["shop", "shop.orders=", "=a", "shop.orders=a b", "sh op=a", "shop.$x=a", "shop.=a"] {
        assert!(text.parse::<Route>().is_err(), "{text}");
    }
}

/// `$out` fills a temporary collection and renames it, so it must create it in the part of its target.
#[tokio::test]
async fn out_and_lookup_use_the_other_store() {
    let two = Two::new();
    let store = two.routed(&["*=main", "shop.orders=side"]);
    store.insert_one(&named("shop.items"), rawdoc! { "_id": 1, "n": 7 }).await.expect("insert");
    let out = vec![rawdoc! { "$set": { "item": 1 } }, rawdoc! { "$out": "orders" }];
    store.aggregate(Aggregate::new(named("shop.items"), out)).await.expect("out");
    let there = two.side.find_one(&named("shop.orders"), rawdoc! {}).await.expect("find");
    assert_eq!(there, Some(rawdoc! { "_id": 1, "n": 7, "item": 1 }));
    assert_eq!(two.main.list_collections("shop").await.expect("list").len(), 1);

    let lookup = rawdoc! { "from": "items", "localField": "item", "foreignField": "_id", "as": "items" };
    let pipeline = vec![rawdoc! { "$lookup": lookup }];
    let mut cursor = store.aggregate(Aggregate::new(named("shop.orders"), pipeline)).await.expect("lookup");
    let page = cursor.next_page(BatchLimit::REPLY).await.expect("a page");
    assert_eq!(page.documents[0].get_array("items").expect("items").into_iter().count(), 1);
}

#[tokio::test]
async fn a_ticket_is_refused() {
    let store = Two::new().routed(&["*=main", "shop=side"]);
    let ticket =
        Some(Ticket { session: [1; 16], number: 1, statement: 0, requested: crate::RequestedDocument::Nothing });
    let insert = Insert { ticket, ..Insert::new(named("shop.orders"), vec![rawdoc! { "_id": 1 }]) };
    assert_eq!(store.insert(insert).await.expect_err("refused").code(), Code::CommandNotSupported);
}

#[tokio::test]
async fn another_rule_and_other_stores_are_refused() {
    let two = Two::new();
    let rule = ["*=main", "shop.orders=side"];
    let store = two.opened(&rule).await.expect("the first time");
    store.insert_one(&named("shop.orders"), rawdoc! { "_id": 1 }).await.expect("insert");
    let found = two.opened(&["shop.orders=side", "*=main"]).await.expect("the same rule").list_databases().await;
    assert_eq!(found.expect("databases"), ["handfast", "shop"]);

    let check = async |parts: Vec<Part>, texts: &[&str], why: &str| {
        let refused = Routed::open(parts, &routes(texts), Sources::seeded(4)).await.expect_err(why);
        assert!(refused.message().contains(why), "{refused}");
        assert_eq!(refused.code(), Code::IllegalOperation);
    };
    check(two.parts(), &["*=main", "shop.items=side"], "are kept by other routes: *=main shop.orders=side, not").await;
    let swapped = vec![Part::new("main", two.side.clone()), Part::new("side", two.main.clone())];
    check(swapped, &rule, "the store 'main' is 'side' of another set").await;
    let other = Two::new();
    let mixed = vec![Part::new("main", other.main.clone()), Part::new("side", two.side.clone())];
    check(mixed, &rule, "the store 'side' is 'side' of another set").await;
    let mixed = vec![Part::new("main", two.main.clone()), Part::new("side", other.side.clone())];
    Routed::open(other.parts(), &routes(&rule), Sources::seeded(5)).await.expect("two others");
    check(mixed, &rule, "the store 'side' is 'side' of another set").await;

    for part in two.parts() {
        let refused = ensure_alone(&*part.store).await.expect_err("a part");
        assert!(refused.message().contains(&format!("the store '{}' of several", part.name)), "{refused}");
    }
    ensure_alone(&MemoryStore::new(Sources::seeded(1))).await.expect("a store on its own");
}

#[tokio::test]
async fn the_first_opening_refuses_collections_outside_their_part() {
    let two = Two::new();
    two.main.insert_one(&named("shop.orders"), rawdoc! { "_id": 1 }).await.expect("insert");
    let refused = two.opened(&["*=main", "shop.orders=side"]).await.expect_err("it would not be found");
    assert!(refused.message().contains("shop.orders is in the store 'main', and the routes look for it in 'side'"));
    two.opened(&["*=main", "shop.items=side"]).await.expect("it is found");

    // There must be one timestamp oracle, in the store of the rest.
    let two = Two::new();
    two.side.insert_one(&named("handfast.oracle"), rawdoc! { "_id": "oracle" }).await.expect("insert");
    let refused = two.opened(&["*=main", "shop=side"]).await.expect_err("two clocks");
    assert!(refused.message().contains("handfast.oracle is in the store 'side'"), "{refused}");
}

/// A part may have collections that the rule assigns to another part.
#[tokio::test]
async fn collections_outside_their_part_are_not_listed() {
    let two = Two::new();
    let store = two.routed(&["*=main", "shop.orders=side"]);
    two.side.insert_one(&named("shop.items"), rawdoc! { "_id": 1 }).await.expect("insert");
    two.side.insert_one(&named("bank.accounts"), rawdoc! { "_id": 1 }).await.expect("insert");
    // This part has the other collections of the database.
    two.main.insert_one(&named("shop.orders"), rawdoc! { "_id": 2 }).await.expect("insert");
    assert_eq!(store.list_databases().await.expect("databases"), Vec::<String>::new());
    store.insert_one(&named("shop.orders"), rawdoc! { "_id": 1 }).await.expect("insert");
    assert_eq!(store.list_databases().await.expect("databases"), ["shop"]);
    let infos = store.list_collections("shop").await.expect("collections");
    assert_eq!(infos.iter().map(|info| info.name.as_str()).collect::<Vec<_>>(), ["orders"]);
    assert_eq!(store.find_one(&named("shop.items"), rawdoc! {}).await.expect("find"), None);
}

/// Returns parts of which one freezes at an operation, and the store that releases it.
fn frozen_at(two: &Two, part: usize, number: u64) -> (Vec<Part>, Arc<Faulty<dyn DocumentStore>>) {
    let mut parts = two.parts();
    let faulty = Arc::new(Faulty::new(Arc::clone(&parts[part].store), Plan::at(number, Fault::FreezeBefore)));
    parts[part].store = faulty.clone();
    (parts, faulty)
}

/// Two processes join the same stores by different rules at the same time, and each freezes at every step: one opens the stores, and
/// the other is refused.
#[tokio::test]
async fn one_of_two_first_openings_with_different_rules_succeeds() {
    const STEPS: u64 = 8;
    let rules = [["*=main", "shop=side"], ["*=side", "bank=main"]];
    let steps = || (0..2).flat_map(|part| (0..STEPS).map(move |number| (part, number)));
    let mut won = [0, 0];
    for (first, second) in steps().flat_map(|first| steps().map(move |second| (first, second))) {
        let two = Two::new();
        let mut openings = Vec::new();
        for (rule, (part, number)) in rules.into_iter().zip([first, second]) {
            let (parts, faulty) = frozen_at(&two, part, number);
            let sources = Sources::seeded(6 + openings.len() as u64);
            let opening = tokio::spawn(async move { Routed::open(parts, &routes(&rule), sources).await });
            while faulty.frozen() == 0 && !opening.is_finished() {
                tokio::task::yield_now().await;
            }
            openings.push((opening, faulty));
        }
        let mut opened = Vec::new();
        for (opening, faulty) in openings {
            faulty.release();
            opened.push(opening.await.expect("joined"));
        }
        let (winner, refused) = match &opened[..] {
            [Ok(_), Err(refused)] => (0, refused),
            [Err(refused), Ok(_)] => (1, refused),
            both => panic!("{first:?} {second:?}: {both:?}"),
        };
        let reasons = ["by other routes: ", "of another set of stores"];
        assert!(reasons.iter().any(|why| refused.message().contains(why)), "{refused}");
        won[winner] += 1;
        two.opened(&rules[winner]).await.expect("the rule that won");
        two.opened(&rules[1 - winner]).await.expect_err("the other one");
    }
    assert!(won.iter().all(|count| *count > 10), "{won:?}");
}

/// After a process has died with its claim, the same routes open the stores, and other routes are refused with the document to delete.
#[tokio::test]
async fn an_abandoned_claim_is_completed_or_deleted() {
    let (rule, other) = (["*=main", "shop.orders=side"], ["*=main", "shop.items=side"]);
    for deletes in [false, true] {
        let two = Two::new();
        let (records, id) = (named("handfast.routing"), rawdoc! { "_id": "claim" });
        let left = rawdoc! { "_id": "claim", "set": "65f", "part": "main", "routes": ["*=main", "shop.orders=side"] };
        two.main.insert_one(&records, left).await.expect("insert");
        let refused = two.opened(&other).await.expect_err("claimed for another rule");
        assert!(
            refused.message().contains("delete the document with the _id 'claim' from handfast.routing"),
            "{refused}"
        );
        if deletes {
            two.main.delete_one(&records, id).await.expect("delete");
            two.opened(&other).await.expect("there is no claim");
        } else {
            two.opened(&rule).await.expect("the rule of the claim");
        }
    }
}

#[tokio::test]
async fn opening_recorded_stores_writes_nothing() {
    let two = Two::new();
    let rule = ["*=main", "shop.orders=side"];
    let open_recorded = async |parts: Vec<Part>| Routed::open_recorded(parts, &routes(&rule), Sources::seeded(4)).await;
    let refused = open_recorded(two.parts()).await.expect_err("never put together");
    assert!(refused.message().contains("never used together"), "{refused}");
    for part in two.parts() {
        assert_eq!(part.store.list_databases().await.expect("databases"), Vec::<String>::new());
    }
    two.opened(&rule).await.expect("the first time");
    open_recorded(two.parts()).await.expect("what is recorded");
    let other = Two::new();
    let mixed = vec![Part::new("main", two.main.clone()), Part::new("side", other.side.clone())];
    let refused = open_recorded(mixed).await.expect_err("another store");
    assert!(refused.message().contains("'side' was never used together"), "{refused}");
    assert_eq!(other.side.list_databases().await.expect("databases"), Vec::<String>::new());
}

/// The database is in both stores: while one of them is down, its collections stay, and the error says that others may be dropped.
#[tokio::test]
async fn a_database_is_dropped_in_one_store_and_then_in_the_other() {
    let two = Two::new();
    let side = Arc::new(Faulty::new(
        two.side.clone(),
        Plan::at_request(Address::first(Operation::DropDatabase), Fault::CrashBefore),
    ));
    let parts = vec![Part::new("main", two.main.clone()), Part::new("side", side.clone())];
    let store = Routed::new(parts, &routes(&["*=main", "shop.orders=side"]), Sources::seeded(3)).expect("a rule");
    for name in ["shop.orders", "shop.items"] {
        store.insert_one(&named(name), rawdoc! { "_id": 1 }).await.expect("insert");
    }
    let error = store.drop_database("shop").await.expect_err("one is away");
    assert_eq!(error.applied(), Applied::Maybe, "{error}");
    assert_eq!(two.main.list_collections("shop").await.expect("list").len(), 0);
    assert_eq!(two.side.list_collections("shop").await.expect("list").len(), 1);
    let away = store.drop_database("shop").await.expect_err("it still is");
    assert_eq!((away.class(), away.applied()), (ErrorClass::Outage, Applied::No), "{away}");
    side.restart();
    assert!(store.drop_database("shop").await.expect("it is back"));
    assert!(!store.drop_database("shop").await.expect("once"));
}
