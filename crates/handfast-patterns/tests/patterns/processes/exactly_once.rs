//! Updates with a token: each counts once, although processes are killed, requests and answers are lost, and other
//! processes repeat them.

use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Document, rawdoc};
use handfast_patterns::exactly_once::{Memory, TwoStepOptions};
use handfast_patterns::{Change, ExactlyOnce, Result, Token, TwoStep};
use handfast_store::decorator::{Fault, Faulty, Plan};
use handfast_store::{DocumentStore, Find, StoreExt};

use super::{Crew, PAUSE, Process, ROUNDS};

const PAGES: u64 = 32;
/// The number of tokens that a page keeps: more than there are visits.
const TOKENS_MAX: u32 = 1_000_000;
/// The number of visitors of a process at once.
const TASKS: u32 = 4;
/// The number of visits that a visitor stores before it counts some.
const VISITS: u32 = 5;

async fn once(process: &Process, store: Arc<dyn DocumentStore>) -> Result<ExactlyOnce> {
    ExactlyOnce::open_with(store, process.namespace("pages"), process.sources.clone(), memory()).await
}

fn memory() -> Memory {
    Memory { tokens_max: TOKENS_MAX, ..Memory::default() }
}

async fn two_step(process: &Process, store: Arc<dyn DocumentStore>) -> Result<TwoStep> {
    let count = Change::increment("views", 1).or_insert();
    let options = TwoStepOptions { memory: memory(), ..TwoStepOptions::default() };
    TwoStep::open_with(store, process.namespace("pages2"), process.sources.clone(), count, options).await
}

/// Counts a visit in both forms, repeatedly until there is an answer.
async fn count(once: &ExactlyOnce, two_step: &TwoStep, token: Token, page: i32) {
    let view = Change::increment("views", 1).or_insert();
    while !once.apply(token, page, &view).await.is_ok_and(handfast_patterns::UpdateOutcome::is_applied) {}
    while !two_step.apply(token, page).await.is_ok_and(handfast_patterns::UpdateOutcome::is_applied) {}
}

/// Returns visits, at most `limit`, that are not known to be counted.
async fn open_visits(process: &Process, limit: u64) -> Vec<(ObjectId, i32)> {
    let find = Find { limit: Some(limit), ..Find::new(process.namespace("visits"), rawdoc! { "counted": false }) };
    let found = process.store.find_all(find).await.unwrap();
    found.iter().map(|visit| (visit.get_object_id("_id").unwrap(), visit.get_i32("page").unwrap())).collect()
}

async fn counted(process: &Process, visit: ObjectId) -> Result<()> {
    let set = rawdoc! { "$set": { "counted": true } };
    process.store.update_one(&process.namespace("visits"), rawdoc! { "_id": visit }, set).await?;
    Ok(())
}

pub(super) async fn work(process: Process) -> Result<()> {
    let faults = || Plan::seeded(process.sources.random.next_u64(), 100, [Fault::LoseReply, Fault::LoseRequest]);
    let faulty = || -> Arc<dyn DocumentStore> { Arc::new(Faulty::new(Arc::clone(&process.store), faults())) };
    // Opening also creates the indexes.
    let (once, two_step) = loop {
        if let (Ok(once), Ok(two_step)) = (once(&process, faulty()).await, two_step(&process, faulty()).await) {
            break (once, two_step);
        }
    };
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        tasks.spawn(visit(process.clone(), once.clone(), two_step.clone()));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap()?;
    }
    Ok(())
}

async fn visit(process: Process, once: ExactlyOnce, two_step: TwoStep) -> Result<()> {
    loop {
        for _ in 0..VISITS {
            let visit =
                rawdoc! { "_id": process.sources.ids.object_id(), "page": process.any(PAGES), "counted": false };
            process.store.insert_one(&process.namespace("visits"), visit).await?;
        }
        // All processes take from the same visits, so that some count the same one.
        let mut visits = open_visits(&process, 20).await;
        let first = process.any(20) as usize % visits.len().max(1);
        visits.rotate_left(first);
        for (visit, page) in visits.into_iter().take(3) {
            count(&once, &two_step, Token(visit), page).await;
            // This finishes updates of killed processes, and some that other processes are making.
            two_step.clean_up(Duration::ZERO, 10).await.ok();
            tokio::time::sleep(PAUSE).await;
            counted(&process, visit).await?;
            process.progress().await?;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn visits_are_counted_once_though_processes_are_killed_and_answers_get_lost() {
    let crew = Crew::new("exactly_once").await;
    let here = &crew.here;
    let (once, two_step) =
        (once(here, Arc::clone(&here.store)).await.unwrap(), two_step(here, Arc::clone(&here.store)).await.unwrap());
    let mut left = 0;
    for round in 0..ROUNDS {
        crew.round(round).await;
        let left_open = open_visits(here, 10_000).await;
        // These visits were counted in one form at least, which no process knows.
        let pages = crew.here.all("pages").await;
        let applied = |visit: &&(ObjectId, i32)| {
            let has = |page: &Document| page.get_array("applied").is_ok_and(|tokens| tokens.contains(&visit.0.into()));
            pages.iter().any(has)
        };
        left += left_open.iter().filter(applied).count();
    }
    two_step.clean_up(Duration::ZERO, 10_000).await.unwrap();
    for (visit, page) in open_visits(here, 10_000).await {
        count(&once, &two_step, Token(visit), page).await;
    }
    let visits = here.all("visits").await;
    let visits_of = |page: &Document| visits.iter().filter(|visit| visit.get("page") == page.get("_id")).count();
    println!("{} visits; {left} were counted by processes that were killed before they could say so", visits.len());
    for form in ["pages", "pages2"] {
        let pages = here.all(form).await;
        for page in &pages {
            assert_eq!(page.get_i64("views").unwrap() as usize, visits_of(page), "{form} {}", page.get("_id").unwrap());
        }
        assert_eq!(pages.iter().map(visits_of).sum::<usize>(), visits.len(), "{form}");
    }
    for page in here.all("pages2").await {
        assert!(page.get_array("pending").is_ok_and(Vec::is_empty), "{page}");
    }
    assert!(left > 0, "no process was killed between a count and its word about it");
}
