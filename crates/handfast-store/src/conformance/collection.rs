//! Collections and databases.

use bson::rawdoc;
use handfast_mql::Code;

use super::subject::{Failure, Subject, c, id, ids, named, numbered, refused};
use super::{ensure, ensure_eq, list_cases};
use crate::{CollectionOptions, Find, IndexSpec, ModifyCollection, Namespace, RenameCollection};

list_cases! { Nothing:
    collection_is_created_empty,
    collection_created_twice_is_kept,
    collection_list_is_by_name,
    collection_list_of_a_missing_database_is_empty,
    collection_drop_says_whether_there_was_one,
    collection_drop_takes_its_documents_and_indexes,
    collection_of_the_same_name_gets_another_uuid,
    collection_change_of_a_missing_one_is_refused,
    rename_moves_documents_and_indexes,
    rename_to_another_database,
    rename_of_a_missing_collection_is_refused,
    rename_onto_an_existing_collection_is_refused,
    rename_may_drop_its_target,
    rename_to_itself_is_refused,
    database_list_has_those_with_collections,
    database_drop_takes_all_its_collections,
    stats_count_documents_and_bytes,
    stats_of_a_missing_collection_are_zero,
    flush_returns,
}

async fn collections(s: &Subject) -> Result<Vec<String>, Failure> {
    Ok(s.store.list_collections("conformance").await?.into_iter().map(|info| info.name).collect())
}

async fn create(s: &Subject, name: &str) -> Result<(), Failure> {
    Ok(s.store.create_collection(&named(name), CollectionOptions::default()).await?)
}

async fn collection_is_created_empty(s: &Subject) -> Result<(), Failure> {
    create(s, "c").await?;
    ensure_eq!(collections(s).await?, ["c"]);
    ensure_eq!(s.all().await?.len(), 0);
    let indexes = s.store.list_indexes(&c()).await?;
    ensure_eq!(indexes.len(), 1);
    ensure_eq!(indexes[0].spec.name, "_id_");
    ensure_eq!(indexes[0].spec.key, rawdoc! { "_id": 1 });
    Ok(())
}

async fn collection_created_twice_is_kept(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    create(s, "c").await?;
    ensure_eq!(s.all().await?.len(), 1);
    Ok(())
}

async fn collection_list_is_by_name(s: &Subject) -> Result<(), Failure> {
    for name in ["zebra", "ant", "m.n", "Zebra"] {
        create(s, name).await?;
    }
    ensure_eq!(collections(s).await?, ["Zebra", "ant", "m.n", "zebra"]);
    Ok(())
}

async fn collection_list_of_a_missing_database_is_empty(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    ensure_eq!(s.store.list_collections("missing").await?.len(), 0);
    Ok(())
}

async fn collection_drop_says_whether_there_was_one(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    ensure!(s.store.drop_collection(&c()).await?, "the collection was there");
    ensure!(!s.store.drop_collection(&c()).await?, "the collection was gone");
    ensure_eq!(collections(s).await?.len(), 0);
    Ok(())
}

async fn collection_drop_takes_its_documents_and_indexes(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "n": 1 }) }).await?;
    s.fill(numbered(50)).await?;
    s.store.drop_collection(&c()).await?;
    ensure_eq!(s.all().await?.len(), 0);
    // The new collection has neither the old documents nor the old keys.
    s.fill((0..50).map(|n| rawdoc! { "_id": n, "n": 0 })).await?;
    ensure_eq!(s.store.list_indexes(&c()).await?.len(), 1);
    Ok(())
}

async fn collection_of_the_same_name_gets_another_uuid(s: &Subject) -> Result<(), Failure> {
    create(s, "c").await?;
    create(s, "d").await?;
    let before = s.store.list_collections("conformance").await?;
    ensure!(before[0].uuid != before[1].uuid, "two collections share a uuid");
    s.store.drop_collection(&c()).await?;
    create(s, "c").await?;
    let after = s.store.list_collections("conformance").await?;
    ensure!(before[0].uuid != after[0].uuid, "the new collection has the old one's uuid");
    ensure_eq!(before[1].uuid, after[1].uuid);
    Ok(())
}

async fn collection_change_of_a_missing_one_is_refused(s: &Subject) -> Result<(), Failure> {
    let request = ModifyCollection::new(c());
    refused(s.store.modify_collection(request.clone()).await, Code::NamespaceNotFound)?;
    s.fill([id(1)]).await?;
    s.store.modify_collection(request).await?;
    Ok(())
}

fn rename(from: Namespace, to: Namespace, drop_target: bool) -> RenameCollection {
    RenameCollection { from, to, drop_target }
}

async fn rename_moves_documents_and_indexes(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec { unique: true, ..IndexSpec::new(rawdoc! { "n": 1 }) }).await?;
    s.fill(numbered(50)).await?;
    s.store.rename_collection(rename(c(), named("d"), false)).await?;
    ensure_eq!(collections(s).await?, ["d"]);
    ensure_eq!(s.all().await?.len(), 0);
    ensure_eq!(s.find(Find::new(named("d"), rawdoc! {})).await?.len(), 50);
    ensure_eq!(ids(&s.find(Find::new(named("d"), rawdoc! { "n": 7 })).await?)?, [7]);
    let twice = crate::Insert::new(named("d"), vec![rawdoc! { "_id": 100, "n": 7 }]);
    let refused = s.store.insert(twice).await?;
    ensure_eq!(refused.errors.len(), 1);
    let text = "E11000 duplicate key error collection: conformance.d index: n_1 dup key: { n: 7 }";
    ensure_eq!(refused.errors[0].error.message(), text);
    Ok(())
}

async fn rename_to_another_database(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(5)).await?;
    let other = Namespace::new("conformance2", "c")?;
    s.store.rename_collection(rename(c(), other.clone(), false)).await?;
    ensure_eq!(s.find(Find::new(other, rawdoc! {})).await?.len(), 5);
    ensure_eq!(collections(s).await?.len(), 0);
    Ok(())
}

async fn rename_of_a_missing_collection_is_refused(s: &Subject) -> Result<(), Failure> {
    refused(s.store.rename_collection(rename(c(), named("d"), false)).await, Code::NamespaceNotFound)?;
    Ok(())
}

async fn rename_onto_an_existing_collection_is_refused(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    s.fill_in(&named("d"), [id(2)]).await?;
    refused(s.store.rename_collection(rename(c(), named("d"), false)).await, Code::NamespaceExists)?;
    ensure_eq!(s.ids(rawdoc! {}).await?, [1]);
    ensure_eq!(ids(&s.find(Find::new(named("d"), rawdoc! {})).await?)?, [2]);
    Ok(())
}

async fn rename_may_drop_its_target(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    s.fill_in(&named("d"), [id(2)]).await?;
    s.store.rename_collection(rename(c(), named("d"), true)).await?;
    ensure_eq!(collections(s).await?, ["d"]);
    ensure_eq!(ids(&s.find(Find::new(named("d"), rawdoc! {})).await?)?, [1]);
    Ok(())
}

async fn rename_to_itself_is_refused(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    for drop_target in [false, true] {
        let renamed = s.store.rename_collection(rename(c(), c(), drop_target)).await;
        refused(renamed, Code::IllegalOperation)?;
    }
    ensure_eq!(s.ids(rawdoc! {}).await?, [1]);
    Ok(())
}

async fn database_list_has_those_with_collections(s: &Subject) -> Result<(), Failure> {
    ensure_eq!(s.store.list_databases().await?, Vec::<String>::new());
    for database in ["zoo", "app"] {
        s.fill_in(&Namespace::new(database, "c")?, [id(1)]).await?;
    }
    ensure_eq!(s.store.list_databases().await?, ["app", "zoo"]);
    s.store.drop_collection(&Namespace::new("zoo", "c")?).await?;
    ensure_eq!(s.store.list_databases().await?, ["app"]);
    Ok(())
}

async fn database_drop_takes_all_its_collections(s: &Subject) -> Result<(), Failure> {
    s.fill([id(1)]).await?;
    s.fill_in(&named("d"), [id(1)]).await?;
    // The name of another database may begin with the same letters.
    let near = Namespace::new("conformance2", "c")?;
    s.fill_in(&near, [id(1)]).await?;
    ensure!(s.store.drop_database("conformance").await?, "the database was there");
    ensure!(!s.store.drop_database("conformance").await?, "the database was gone");
    ensure_eq!(collections(s).await?.len(), 0);
    ensure_eq!(s.all().await?.len(), 0);
    ensure_eq!(s.find(Find::new(near, rawdoc! {})).await?.len(), 1);
    Ok(())
}

async fn stats_count_documents_and_bytes(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec::new(rawdoc! { "n": 1 })).await?;
    s.fill(numbered(50)).await?;
    let one = rawdoc! { "_id": 0, "n": 0 }.as_bytes().len() as u64;
    let stats = s.store.collection_stats(&c()).await?;
    ensure!(stats.exists, "{stats:?}");
    ensure_eq!((stats.count, stats.size_bytes), (50, 50 * one));
    let names: Vec<_> = stats.index_bytes.iter().map(|(name, _)| name.as_str()).collect();
    ensure_eq!(names, ["_id_", "n_1"]);
    s.delete(rawdoc! { "n": { "$lt": 20 } }, true).await?;
    s.update_one(id(30), rawdoc! { "$unset": { "n": 1 } }).await?;
    let stats = s.store.collection_stats(&c()).await?;
    let shorter = id(30).as_bytes().len() as u64;
    ensure_eq!((stats.count, stats.size_bytes), (30, 29 * one + shorter));
    Ok(())
}

async fn stats_of_a_missing_collection_are_zero(s: &Subject) -> Result<(), Failure> {
    let stats = s.store.collection_stats(&c()).await?;
    ensure!(!stats.exists, "{stats:?}");
    ensure_eq!((stats.count, stats.size_bytes, stats.index_bytes.len()), (0, 0, 0));
    Ok(())
}

async fn flush_returns(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(5)).await?;
    s.store.flush().await?;
    s.store.flush().await?;
    ensure_eq!(s.all().await?.len(), 5);
    Ok(())
}
