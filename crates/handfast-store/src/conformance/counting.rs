//! Counts, distinct values, explanations.

use bson::{RawBson, RawDocumentBuf, rawdoc};
use handfast_mql::Code;

use super::subject::{Failure, Subject, c, id, named, numbered, refused};
use super::{ensure, ensure_eq, list_cases};
use crate::{Aggregate, Count, Distinct, Explain, Explained, Find, Hint, IndexSpec, Verbosity};

list_cases! { Nothing:
    count_of_all_and_of_some,
    count_in_a_missing_collection,
    count_skips_and_limits,
    count_refuses_an_unknown_operator,
    count_refuses_a_hint_to_no_index,
    count_of_arrays_counts_documents,
    distinct_values_in_order,
    distinct_unwinds_arrays,
    distinct_takes_equal_numbers_for_one,
    distinct_by_dotted_path_and_filter,
    distinct_in_a_missing_collection,
    distinct_refuses_an_unknown_operator,
    explain_shows_a_plan,
    explain_counts_what_it_returned,
    explain_refuses_what_find_refuses,
    explain_of_an_aggregation,
}

async fn count(s: &Subject, filter: RawDocumentBuf) -> Result<u64, Failure> {
    Ok(s.store.count(Count::new(c(), filter)).await?)
}

async fn count_of_all_and_of_some(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(50)).await?;
    ensure_eq!(count(s, rawdoc! {}).await?, 50);
    ensure_eq!(count(s, rawdoc! { "n": { "$gte": 48 } }).await?, 2);
    ensure_eq!(count(s, id(7)).await?, 1);
    ensure_eq!(count(s, id("x")).await?, 0);
    s.delete(rawdoc! { "n": { "$lt": 10 } }, true).await?;
    ensure_eq!(count(s, rawdoc! {}).await?, 40);
    Ok(())
}

async fn count_in_a_missing_collection(s: &Subject) -> Result<(), Failure> {
    ensure_eq!(count(s, rawdoc! {}).await?, 0);
    Ok(())
}

async fn count_skips_and_limits(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(50)).await?;
    let counted = async |skip, limit| Ok::<_, Failure>(s.store.count(Count { skip, limit, ..all() }).await?);
    ensure_eq!(counted(10, None).await?, 40);
    ensure_eq!(counted(0, Some(7)).await?, 7);
    ensure_eq!(counted(45, Some(7)).await?, 5);
    ensure_eq!(counted(60, Some(7)).await?, 0);
    Ok(())
}

fn all() -> Count {
    Count::new(c(), rawdoc! {})
}

async fn count_refuses_an_unknown_operator(s: &Subject) -> Result<(), Failure> {
    refused(s.store.count(Count::new(c(), rawdoc! { "a": { "$frobnicate": 1 } })).await, Code::BadValue)?;
    Ok(())
}

async fn count_refuses_a_hint_to_no_index(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(5)).await?;
    refused(s.store.count(Count { hint: Some(Hint::Name("missing".to_owned())), ..all() }).await, Code::BadValue)?;
    Ok(())
}

/// A document is counted once, however many of its index entries match.
async fn count_of_arrays_counts_documents(s: &Subject) -> Result<(), Failure> {
    s.index(IndexSpec::new(rawdoc! { "a": 1 })).await?;
    s.fill([rawdoc! { "_id": 1, "a": [1, 2, 3] }, rawdoc! { "_id": 2, "a": [3, 4] }, rawdoc! { "_id": 3, "a": 9 }])
        .await?;
    ensure_eq!(count(s, rawdoc! { "a": { "$lte": 4 } }).await?, 2);
    ensure_eq!(count(s, rawdoc! { "a": { "$in": [1, 2, 4] } }).await?, 2);
    Ok(())
}

async fn distinct(s: &Subject, key: &str, filter: RawDocumentBuf) -> Result<Vec<RawBson>, Failure> {
    Ok(s.store.distinct(Distinct { namespace: c(), key: key.to_owned(), filter, hint: None, collation: None }).await?)
}

async fn distinct_values_in_order(s: &Subject) -> Result<(), Failure> {
    s.fill([5, 3, 5, 1].into_iter().zip(0..).map(|(v, n)| rawdoc! { "_id": n, "v": v })).await?;
    s.fill([rawdoc! { "_id": 8, "v": "x" }, rawdoc! { "_id": 9 }]).await?;
    ensure_eq!(distinct(s, "v", rawdoc! {}).await?, [1.into(), 3.into(), 5.into(), RawBson::from("x")]);
    Ok(())
}

async fn distinct_unwinds_arrays(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "v": [2, 1] }, rawdoc! { "_id": 2, "v": 2 }, rawdoc! { "_id": 3, "v": [] }]).await?;
    ensure_eq!(distinct(s, "v", rawdoc! {}).await?, [RawBson::from(1), 2.into()]);
    Ok(())
}

async fn distinct_takes_equal_numbers_for_one(s: &Subject) -> Result<(), Failure> {
    s.fill([rawdoc! { "_id": 1, "v": 1 }, rawdoc! { "_id": 2, "v": 1.0 }, rawdoc! { "_id": 3, "v": 1_i64 }]).await?;
    ensure_eq!(distinct(s, "v", rawdoc! {}).await?.len(), 1);
    Ok(())
}

async fn distinct_by_dotted_path_and_filter(s: &Subject) -> Result<(), Failure> {
    s.fill((0..6).map(|n| rawdoc! { "_id": n, "a": [{ "b": n % 3 }] })).await?;
    ensure_eq!(distinct(s, "a.b", rawdoc! { "_id": { "$lt": 2 } }).await?, [RawBson::from(0), 1.into()]);
    Ok(())
}

async fn distinct_in_a_missing_collection(s: &Subject) -> Result<(), Failure> {
    ensure_eq!(distinct(s, "a", rawdoc! {}).await?, Vec::<RawBson>::new());
    Ok(())
}

async fn distinct_refuses_an_unknown_operator(s: &Subject) -> Result<(), Failure> {
    let filter = rawdoc! { "a": { "$frobnicate": 1 } };
    let request = Distinct { namespace: c(), key: "a".to_owned(), filter, hint: None, collation: None };
    refused(s.store.distinct(request).await, Code::BadValue)?;
    Ok(())
}

fn explain(find: Find, verbosity: Verbosity) -> Explain {
    Explain { explained: Explained::Find(find), verbosity }
}

async fn explain_shows_a_plan(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(5)).await?;
    for namespace in [c(), named("missing")] {
        let shown = s.store.explain(explain(Find::new(namespace, rawdoc! { "n": 1 }), Verbosity::QueryPlanner)).await?;
        let planner = shown.get_document("queryPlanner")?;
        ensure!(planner.get_document("winningPlan").is_ok(), "no winningPlan in {shown:?}");
        ensure!(shown.get("executionStats")?.is_none(), "a plan alone was asked for: {shown:?}");
    }
    Ok(())
}

async fn explain_counts_what_it_returned(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(20)).await?;
    let find = Find::new(c(), rawdoc! { "n": { "$gte": 15 } });
    let shown = s.store.explain(explain(find, Verbosity::ExecutionStats)).await?;
    let returned = shown.get_document("executionStats")?.get("nReturned")?.map(RawBson::from);
    ensure!(returned == Some(5.into()) || returned == Some(5_i64.into()), "nReturned of 5 is {returned:?}");
    Ok(())
}

async fn explain_refuses_what_find_refuses(s: &Subject) -> Result<(), Failure> {
    let find = Find::new(c(), rawdoc! { "a": { "$frobnicate": 1 } });
    refused(s.store.explain(explain(find, Verbosity::QueryPlanner)).await, Code::BadValue)?;
    Ok(())
}

async fn explain_of_an_aggregation(s: &Subject) -> Result<(), Failure> {
    s.fill(numbered(5)).await?;
    let aggregate = Aggregate::new(c(), vec![rawdoc! { "$match": { "n": 1 } }, rawdoc! { "$count": "x" }]);
    let request = Explain { explained: Explained::Aggregate(aggregate), verbosity: Verbosity::QueryPlanner };
    ensure!(!s.store.explain(request).await?.is_empty(), "an empty explanation");
    Ok(())
}
