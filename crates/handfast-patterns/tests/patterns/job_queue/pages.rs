//! Lists by type and age, a page at a time, and counts by state.

use std::time::Duration;

use bson::{Bson, Document, doc};
use handfast_patterns::job_queue::{ClaimState, JobFilter, JobState, StateCount};
use handfast_store::StoreExt;

use super::{HOUR, claim, friends, new_id, numbered, open};
use crate::crash::World;

async fn put(world: &World, document: Document) {
    let document = bson::RawDocumentBuf::try_from(&document).unwrap();
    world.store.insert_one(&world.namespace("jobs"), document).await.unwrap();
}

/// The list has ids and ages of several types, some ages more than once, and documents that are not jobs.
#[tokio::test]
async fn pages_show_each_job_once_also_while_those_before_leave_the_list() {
    for leaving in [false, true] {
        let world = World::in_memory();
        let queue = open(&world).await;
        for number in 0..20 {
            let job = if number % 2 == 0 { numbered(number) } else { friends() };
            let id = if number % 3 == 0 { Bson::from(format!("job {number}")) } else { Bson::from(number) };
            queue.enqueue(job.with_id(id)).await.unwrap();
            if number % 5 == 4 {
                world.clock.advance(Duration::from_millis(1));
            }
        }
        put(&world, doc! { "_id": "no job", "state": "TODO" }).await;
        put(&world, doc! { "_id": "no job either", "state": "TODO", "ts": "noon" }).await;
        let (mut jobs, mut odd, mut pages, mut after) = (Vec::new(), 0, 0, None);
        loop {
            let page = queue.page(&JobFilter::in_state(JobState::Todo), after.as_ref(), 3).await.unwrap();
            assert!(page.jobs.len() <= 3);
            for job in page.jobs {
                match job {
                    Ok(job) => {
                        if leaving {
                            assert!(queue.cancel(&job.id).await.unwrap());
                        }
                        jobs.push(job);
                    }
                    Err(_) => odd += 1,
                }
            }
            (pages, after) = (pages + 1, page.next);
            assert!(pages < 20, "the pages have no end");
            if after.is_none() {
                break;
            }
        }
        assert_eq!((jobs.len(), odd), (20, 2));
        assert!(jobs.windows(2).all(|two| two[0].ts <= two[1].ts && two[0].id != two[1].id));
    }
}

#[tokio::test]
async fn lists_are_of_a_type_or_an_age() {
    let world = World::in_memory();
    let queue = open(&world).await;
    let first = new_id(queue.enqueue(friends()).await.unwrap());
    queue.enqueue(numbered(1)).await.unwrap();
    world.clock.advance(HOUR);
    let second = new_id(queue.enqueue(friends()).await.unwrap());
    let all = JobFilter { kind: Some("ADD_FRIEND".to_owned()), ..JobFilter::in_state(JobState::Todo) };
    let ids = async |filter: &JobFilter| {
        let page = queue.page(filter, None, 10).await.unwrap();
        page.jobs.into_iter().map(|job| job.unwrap().id).collect::<Vec<_>>()
    };
    assert_eq!(ids(&all).await, [first, second].map(Bson::from));
    assert_eq!(ids(&JobFilter { before: Some(world.sources.clock.now()), ..all.clone() }).await, [Bson::from(first)]);
    let after = queue.position_of(first).await.unwrap();
    let page = queue.page(&all, after.as_ref(), 10).await.unwrap();
    assert_eq!((page.jobs.len(), page.next), (1, None));
    assert!(queue.page(&all, None, 0).await.is_err());
    assert_eq!(queue.position_of("nobody").await.unwrap(), None);
}

#[tokio::test]
async fn states_are_counted_as_what_they_are() {
    let world = World::in_memory();
    let queue = open(&world).await;
    for _ in 0..3 {
        queue.enqueue(numbered(1)).await.unwrap();
    }
    assert_eq!(queue.complete(&claim(&queue).await, None).await.unwrap(), ClaimState::Held);
    put(&world, doc! { "_id": 1, "state": 7 }).await;
    put(&world, doc! { "_id": 2 }).await;
    let count = |state: Bson, count| StateCount { state, count };
    let expected = [count("TODO".into(), 2), count(Bson::Null, 1), count(7.into(), 1), count("DONE".into(), 1)];
    assert_eq!(queue.count_by_state().await.unwrap(), expected);
}
