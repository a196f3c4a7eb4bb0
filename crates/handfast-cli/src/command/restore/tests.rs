use std::io::Cursor as Bytes;

use super::read::Reader;
use bson::{Bson, Document, RawDocumentBuf, oid::ObjectId, rawdoc};

#[test]
fn documents_come_back_as_they_were() {
    let documents = [
        rawdoc! { "_id": ObjectId::from_bytes([1; 12]), "a": 1_i32, "b": 1_i64, "c": 1.0, "z": "x", "y": [1, { "n": null }] },
        rawdoc! { "_id": 2, "nan": f64::NAN, "inf": f64::INFINITY, "date": bson::DateTime::from_millis(-1) },
        rawdoc! {},
    ];
    let bytes: Vec<u8> = documents.iter().flat_map(|document| document.as_bytes().to_vec()).collect();
    assert_eq!(read(Reader::bson(Bytes::new(bytes))).unwrap(), documents);

    let mut lines = String::new();
    for document in &documents {
        let value = Bson::Document(Document::try_from(document.clone()).unwrap()).into_canonical_extjson();
        lines.push_str(&format!("{value}\n\n"));
    }
    assert_eq!(read(Reader::json(Bytes::new(lines.into_bytes()))).unwrap(), documents);
}

#[test]
fn files_that_are_no_documents_are_refused() {
    let whole = rawdoc! { "a": "text" }.into_bytes();
    for end in 1..whole.len() {
        assert!(read(Reader::bson(Bytes::new(whole[..end].to_vec()))).is_err(), "cut after {end} bytes");
    }
    let check = |bytes: &[u8], expected: &str| {
        let error = format!("{:#}", read(Reader::bson(Bytes::new(bytes.to_vec()))).unwrap_err());
        assert!(error.contains(expected), "{error}");
    };
    check(&[0xff; 16], "the file is not BSON");
    check(&[0x00, 0x00, 0x00, 0x7f, 0], "the file is not BSON, or the document is too long");
    check(&[4, 0, 0, 0], "the file is not BSON");
    let check = |text: &str, expected: &str| {
        let error = format!("{:#}", read(Reader::json(Bytes::new(text.as_bytes().to_vec()))).unwrap_err());
        assert!(error.contains(expected), "{error}");
    };
    check("{", "EOF");
    check("[]", "not a JSON object");
    check("{\"a\": 1} {\"b\": 2}", "trailing characters");
    check(&"{\"a\":".repeat(10_000), "recursion limit");
}

fn read<F: std::io::BufRead>(mut reader: Reader<F>) -> anyhow::Result<Vec<RawDocumentBuf>> {
    let mut documents = Vec::new();
    loop {
        let batch = reader.batch()?;
        if batch.is_empty() {
            return Ok(documents);
        }
        documents.extend(batch);
    }
}

mod with_a_store {
    use std::path::PathBuf;

    use bson::{RawDocumentBuf, rawdoc};
    use handfast_mql::Code;
    use handfast_store::{
        BatchLimit, CollectionInfo, CollectionOptions, DocumentStore, Find, Insert, MemoryStore, Namespace,
        RequestedDocument, Sources, StoreExt, Ticket, Update, UpdateSpec, UpdateStatement, ViewDefinition,
    };
    use indicatif::ProgressBar;

    use crate::command::dump::arguments::{DumpFormat, Selection};
    use crate::command::dump::write::{Damaged, SelectedDatabase, count_documents, find_collections, write_dump};
    use crate::command::dump::{Dumped, Totals};
    use crate::command::restore::progress::RestoreProgress;
    use crate::command::restore::read::{DumpedCollection, find_sources, read_dump};

    const ALL: Selection = Selection { database: None, collection: None };

    fn namespace() -> Namespace {
        Namespace::new("db", "c").unwrap()
    }

    /// Returns a store with this number of documents.
    async fn store_with(count: i32) -> MemoryStore {
        let store = MemoryStore::new(Sources::seeded(1));
        let documents = (0..count).map(|id| rawdoc! { "_id": id, "text": "x".repeat(100) }).collect();
        let outcome = store.insert(Insert::new(namespace(), documents)).await.unwrap();
        assert_eq!(outcome.inserted, u64::try_from(count).unwrap());
        store
    }

    /// Returns a path in a directory of the test's own.
    fn scratch(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("handfast-dump-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).unwrap();
        directory
    }

    async fn dump_all(
        store: &MemoryStore,
        target: &std::path::Path,
        format: DumpFormat,
        chosen: &[SelectedDatabase],
        bar: &ProgressBar,
    ) -> anyhow::Result<Dumped> {
        write_dump(store, Damaged::Refuse, target, format, chosen, bar).await
    }

    async fn restore_all(
        store: &MemoryStore,
        sources: &[DumpedCollection],
        drop_first: bool,
    ) -> anyhow::Result<Totals> {
        let bar = ProgressBar::hidden();
        read_dump(store, sources, drop_first, &mut RestoreProgress::default(), &bar).await?.totals()
    }

    async fn everything(store: &MemoryStore) -> Vec<SelectedDatabase> {
        find_collections(store, &ALL).await.unwrap()
    }

    async fn all(store: &dyn DocumentStore) -> Vec<RawDocumentBuf> {
        let mut cursor = store.find(Find::new(namespace(), RawDocumentBuf::new())).await.unwrap();
        let page = cursor.next_page(BatchLimit { documents: usize::MAX, bytes: usize::MAX }).await.unwrap();
        assert!(page.exhausted);
        page.documents
    }

    #[tokio::test]
    async fn more_than_a_page_comes_back() {
        let directory = scratch("pages");
        let (store, target, bar) = (store_with(2500).await, directory.join("dump"), ProgressBar::hidden());
        let chosen = everything(&store).await;
        assert_eq!(count_documents(&store, &chosen).await.unwrap(), 2500);
        let Dumped { totals: dumped, skipped } =
            dump_all(&store, &target, DumpFormat::Bson, &chosen, &bar).await.unwrap();
        assert_eq!(skipped, 0);
        let size = std::fs::metadata(target.join("db/c.bson")).unwrap().len();
        assert_eq!(dumped, Totals { collections: 1, indexes: 1, documents: 2500, bytes: size });

        let copy = MemoryStore::new(Sources::seeded(2));
        let sources = find_sources(&target, &ALL).unwrap();
        assert_eq!(restore_all(&copy, &sources, false).await.unwrap(), dumped);
        assert_eq!(all(&copy).await, all(&store).await);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[tokio::test]
    async fn odd_names_come_back_with_their_documents() {
        let names = [
            "con",
            "con.metadata",
            "con.metadata.json",
            "con.metadata.metadata",
            "con.json",
            "con.bson",
            "con%2Emetadata",
            "metadata",
            "metadata.json",
            "ö/\\:*?",
            "a b",
            "CON",
        ];
        for format in [DumpFormat::Json, DumpFormat::Bson] {
            let directory = scratch("odd");
            let (store, target, bar) = (store_with(0).await, directory.join("dump"), ProgressBar::hidden());
            for name in names {
                let namespace = Namespace::new("db", name).unwrap();
                store.insert(Insert::new(namespace, vec![rawdoc! { "_id": name }])).await.unwrap();
            }
            let dumped = dump_all(&store, &target, format, &everything(&store).await, &bar).await.unwrap().totals;
            let copy = MemoryStore::new(Sources::seeded(2));
            let restored = restore_all(&copy, &find_sources(&target, &ALL).unwrap(), false).await.unwrap();
            assert_eq!(restored.collections, dumped.collections);
            for name in names {
                let namespace = Namespace::new("db", name).unwrap();
                let found = copy.find_one(&namespace, rawdoc! {}).await.unwrap();
                assert_eq!(found, Some(rawdoc! { "_id": name }), "{name}");
            }
            std::fs::remove_dir_all(directory).unwrap();
        }
    }

    #[tokio::test]
    async fn views_come_back_after_what_they_read() {
        let view = |on: &str| {
            let (on, pipeline) = (on.to_owned(), vec![rawdoc! { "$match": { "_id": 1 } }]);
            let view = Some(ViewDefinition { on, pipeline, collation: None });
            CollectionOptions { view, ..CollectionOptions::default() }
        };
        let named = |name: &str| Namespace::new("db", name).unwrap();
        for format in [DumpFormat::Json, DumpFormat::Bson] {
            let directory = scratch("views");
            let (store, target, bar) = (store_with(3).await, directory.join("dump"), ProgressBar::hidden());
            store.create_collection(&named("a"), view("b")).await.unwrap();
            store.create_collection(&named("b"), view("c")).await.unwrap();
            let dumped = dump_all(&store, &target, format, &everything(&store).await, &bar).await.unwrap().totals;
            assert_eq!((dumped.collections, dumped.documents), (3, 3));
            let copy = MemoryStore::new(Sources::seeded(2));
            let restored = restore_all(&copy, &find_sources(&target, &ALL).unwrap(), false).await.unwrap();
            assert_eq!(restored.collections, 3);
            let found = copy.find_all(Find::new(named("a"), rawdoc! {})).await.unwrap();
            assert_eq!(found.len(), 1);
            let options = |infos: Vec<CollectionInfo>| infos.into_iter().map(|info| info.options).collect::<Vec<_>>();
            let (before, after) = (store.list_collections("db").await, copy.list_collections("db").await);
            assert_eq!(options(after.unwrap()), options(before.unwrap()));
            // Again, and only one of them.
            let selection = Selection { database: Some("db".to_owned()), collection: Some("b".to_owned()) };
            let sources = find_sources(&target, &selection).unwrap();
            assert_eq!(restore_all(&copy, &sources, true).await.unwrap().collections, 1);
            // A collection of the name of a view is not taken for it.
            copy.drop_collection(&named("b")).await.unwrap();
            copy.insert_one(&named("b"), rawdoc! { "_id": 1 }).await.unwrap();
            let error = format!("{:#}", restore_all(&copy, &sources, false).await.unwrap_err());
            assert!(error.contains("db.b") && error.contains("already exists"), "{error}");
            std::fs::remove_dir_all(directory).unwrap();
        }
    }

    #[tokio::test]
    async fn views_with_odd_names_and_definitions_come_back() {
        let named = |name: &str| Namespace::new("db", name).unwrap();
        let lookalike =
            rawdoc! { "$set": { "b": { "$literal": { "$date": 5 } }, "n": { "$literal": { "$numberLong": "5" } } } };
        for format in [DumpFormat::Json, DumpFormat::Bson] {
            let directory = scratch("odd-views");
            let (store, target, bar) = (store_with(3).await, directory.join("dump"), ProgressBar::hidden());
            for name in ["c.metadata", "v", "v.metadata", "v.metadata.metadata"] {
                let view = ViewDefinition { on: "c".to_owned(), pipeline: vec![lookalike.clone()], collation: None };
                let options = CollectionOptions { view: Some(view), ..CollectionOptions::default() };
                store.create_collection(&named(name), options).await.unwrap();
            }
            let dumped = dump_all(&store, &target, format, &everything(&store).await, &bar).await.unwrap().totals;
            let copy = MemoryStore::new(Sources::seeded(2));
            let restored = restore_all(&copy, &find_sources(&target, &ALL).unwrap(), false).await.unwrap();
            assert_eq!(restored.collections, dumped.collections);
            let options = |infos: Vec<CollectionInfo>| {
                infos.into_iter().map(|info| (info.name, info.options)).collect::<Vec<_>>()
            };
            let (before, after) = (store.list_collections("db").await, copy.list_collections("db").await);
            assert_eq!(options(after.unwrap()), options(before.unwrap()));
            std::fs::remove_dir_all(directory).unwrap();
        }
    }

    #[tokio::test]
    async fn a_view_over_secrets_is_not_restored() {
        let directory = scratch("peeking");
        let (store, target, bar) = (store_with(1).await, directory.join("dump"), ProgressBar::hidden());
        dump_all(&store, &target, DumpFormat::Bson, &everything(&store).await, &bar).await.unwrap();
        let admin = target.join("admin");
        std::fs::create_dir(&admin).unwrap();
        for definition in [
            r#"{"viewOn": "system.users", "pipeline": []}"#,
            r#"{"viewOn": "x", "pipeline": [{"$unionWith": "system.keys"}]}"#,
        ] {
            let metadata = format!("{{\"type\": \"view\", \"options\": {definition}}}");
            std::fs::write(admin.join("peek.metadata.json"), metadata).unwrap();
            let error = format!("{:#}", find_sources(&target, &ALL).unwrap_err());
            assert!(error.contains("peek.metadata.json: a view cannot read admin.system."), "{error}");
        }
        // The definitions of views, which no dump of this program has, are passed over.
        std::fs::remove_dir_all(&admin).unwrap();
        std::fs::write(target.join("db/system.views.bson"), rawdoc! { "_id": "db.v", "viewOn": "c" }.as_bytes())
            .unwrap();
        assert_eq!(find_sources(&target, &ALL).unwrap().len(), 1);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[tokio::test]
    async fn a_collection_whose_documents_are_missing_is_not_passed_over() {
        let directory = scratch("without");
        let (store, target, bar) = (store_with(1).await, directory.join("dump"), ProgressBar::hidden());
        dump_all(&store, &target, DumpFormat::Bson, &everything(&store).await, &bar).await.unwrap();
        std::fs::copy(target.join("db/c.metadata.json"), target.join("db/d.metadata.json")).unwrap();
        let error = find_sources(&target, &ALL).unwrap_err().to_string();
        assert!(error.contains("d.metadata.json has no documents beside it"), "{error}");
        std::fs::remove_file(target.join("db/d.metadata.json")).unwrap();
        assert_eq!(find_sources(&target, &ALL).unwrap().len(), 1);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[tokio::test]
    async fn a_dump_that_is_interrupted_leaves_nothing() {
        let directory = scratch("stopped");
        let (store, target, bar) = (store_with(2500).await, directory.join("dump"), ProgressBar::hidden());
        let chosen = everything(&store).await;
        let entries = || std::fs::read_dir(&directory).unwrap().count();
        let mut work = Box::pin(dump_all(&store, &target, DumpFormat::Bson, &chosen, &bar));
        tokio::select! {
            biased;
            _ = &mut work => panic!("it pauses after a page"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(entries(), 1, "it has begun, under another name");
        drop(work);
        assert!(!target.exists());
        assert_eq!(entries(), 0);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[tokio::test]
    async fn an_empty_directory_is_taken_and_a_full_one_is_not() {
        let directory = scratch("target");
        let (store, target, bar) = (store_with(1).await, directory.join("dump"), ProgressBar::hidden());
        let chosen = everything(&store).await;
        std::fs::create_dir(&target).unwrap();
        dump_all(&store, &target, DumpFormat::Json, &chosen, &bar).await.unwrap();
        let error = dump_all(&store, &target, DumpFormat::Json, &chosen, &bar).await.unwrap_err();
        assert!(error.to_string().ends_with("is not empty; choose another directory with --to"), "{error}");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_is_under_way_when_a_restore_is_stopped_may_be_in() {
        let mut restored = RestoreProgress::default();
        restored.begin(1);
        restored.collection(&namespace());
        restored.batch();
        restored.documents(1000);
        assert_eq!(restored.to_string(), "no collection is restored; 1000 documents of db.c are restored");
        restored.batch();
        assert_eq!(restored.to_string(), "no collection is restored; at least 1000 documents of db.c are restored");
    }

    #[tokio::test]
    async fn documents_that_are_refused_are_counted_and_the_others_are_in() {
        let directory = scratch("refused");
        let (store, target, bar) = (store_with(3).await, directory.join("dump"), ProgressBar::hidden());
        let chosen = everything(&store).await;
        dump_all(&store, &target, DumpFormat::Bson, &chosen, &bar).await.unwrap();
        let copy = MemoryStore::new(Sources::seeded(2));
        copy.insert(Insert::new(namespace(), vec![rawdoc! { "_id": 1, "mine": true }])).await.unwrap();
        let sources = find_sources(&target, &ALL).unwrap();
        let error = restore_all(&copy, &sources, false).await.unwrap_err().to_string();
        assert!(error.starts_with("restored 2 documents, refused 1; the first: db.c: E11000"), "{error}");
        assert_eq!(all(&copy).await.len(), 3);
        std::fs::remove_dir_all(directory).unwrap();
    }

    /// Sends the session's request of this number: adds 1 to `n` of document 0, once.
    async fn send(store: &MemoryStore, number: i64) -> handfast_store::Result<()> {
        let change = UpdateSpec::Document(rawdoc! { "$inc": { "n": 1 } });
        let statement = UpdateStatement::one(rawdoc! { "_id": 0 }, change);
        let ticket = Some(Ticket { session: [7; 16], number, statement: 0, requested: RequestedDocument::Nothing });
        let outcome = store.update(Update { ticket, ..Update::new(namespace(), vec![statement]) }).await?;
        outcome.errors.into_iter().next().map_or(Ok(()), |refused| Err(refused.error))
    }

    async fn sent(store: &MemoryStore) -> i32 {
        let document = store.find_one(&namespace(), rawdoc! { "_id": 0 }).await.unwrap().unwrap();
        document.get_i32("n").unwrap_or(0)
    }

    /// Restores a dump, and returns the message if documents were refused.
    async fn restored(store: &MemoryStore, dumped: &std::path::Path, drop: bool) -> Option<String> {
        let sources = find_sources(dumped, &ALL).unwrap();
        restore_all(store, &sources, drop).await.err().map(|error| error.to_string())
    }

    #[tokio::test]
    async fn what_was_done_once_is_done_once_after_a_restore() {
        let directory = scratch("tickets");
        let (store, bar) = (store_with(1).await, ProgressBar::hidden());
        send(&store, 12).await.unwrap();
        let early = directory.join("early");
        dump_all(&store, &early, DumpFormat::Bson, &everything(&store).await, &bar).await.unwrap();
        let copy = MemoryStore::new(Sources::seeded(2));
        assert_eq!(restored(&copy, &early, false).await, None);
        send(&copy, 12).await.unwrap();
        assert_eq!(sent(&copy).await, 1, "the answer was lost, and the write is there");

        // In a second restore the document is refused, and the record is the same.
        let refused = restored(&copy, &early, false).await.unwrap();
        assert!(refused.starts_with("restored 0 documents, refused 1; the first: db.c: E11000"), "{refused}");
        assert_eq!(restored(&copy, &early, true).await, None);

        // The session continues, and an older record does not replace its newer one.
        send(&copy, 13).await.unwrap();
        restored(&copy, &early, false).await.unwrap();
        send(&copy, 13).await.unwrap();
        assert_eq!(sent(&copy).await, 2, "13 was done once");
        assert_eq!(send(&copy, 12).await.unwrap_err().code(), Code::TransactionTooOld);

        // A later request that the dump contains is not applied again.
        let late = directory.join("late");
        send(&store, 14).await.unwrap();
        dump_all(&store, &late, DumpFormat::Json, &everything(&store).await, &bar).await.unwrap();
        restored(&copy, &late, false).await.unwrap();
        send(&copy, 14).await.unwrap();
        assert_eq!(sent(&copy).await, 2, "14 is in the dump");
        std::fs::remove_dir_all(directory).unwrap();
    }
}
