//! A page counts its visits exactly while one answer in five is lost, because each visit has a token.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example talks, and is meant to stop aloud")]

use std::sync::Arc;
use std::time::Duration;

use handfast::Applied;
use handfast::bson::RawDocumentBuf;
use handfast::patterns::{Change, ExactlyOnce, TwoStep, UpdateOutcome};
use handfast::prelude::*;
use handfast_store::decorator::{Fault, Faulty, Plan};

const VISITS: i64 = 100;

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path().join("data")).await?;
    let store = database.store();
    let pages = Namespace::new("site", "pages")?;

    // Takes one round trip. A client without an answer repeats the update with the same token.
    let visits = ExactlyOnce::open(store.clone(), pages.clone(), Default::default()).await?;
    let network = Arc::new(Faulty::new(store.clone(), Plan::seeded(6, 200, [Fault::LoseReply]).writes_only()));
    let visits = visits.within(network.clone());
    let visit = Change::increment("visits", 1).or_insert();
    let mut unheard = 0;
    for _ in 0..VISITS {
        let token = visits.token();
        loop {
            match visits.apply(token, "/", &visit).await {
                Ok(outcome) => break assert!(outcome.is_applied()),
                // The pattern has repeated the update itself, and that answer was lost, too.
                Err(error) if error.applied() == Applied::Maybe => unheard += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }
    let lost = network.injected().len();
    assert!(lost > 10 && unheard > 0, "{lost} answers were lost, {unheard} times two in a row");
    assert_eq!(count(&database, &pages, "visits").await?, VISITS);

    // Takes two steps. A process dies after the first one, and the clean-up finishes it.
    let likes = TwoStep::open(store.clone(), pages.clone(), Change::increment("likes", 1), Default::default());
    let likes = likes.await?;
    assert_eq!(likes.apply(likes.token(), "/").await?, UpdateOutcome::Applied);
    let first_step_only = rawdoc! { "$addToSet": { "pending": likes.token().0 } };
    database.update_one(&pages, rawdoc! { "_id": "/" }, first_step_only).await?;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let round = likes.clean_up(Duration::ZERO, 100).await?;
    assert_eq!((round.done, round.failed), (1, 0));
    assert_eq!(count(&database, &pages, "likes").await?, 2);

    // An update that the store refuses is an error, and certainly not applied.
    let plain = visits.within(store);
    let refused = plain.apply(plain.token(), "/", &Change::increment("_id", 1)).await.expect_err("not a number");
    assert_eq!(refused.applied(), Applied::No);
    println!("{VISITS} visits and 2 likes, each counted once, while {lost} answers were lost");
    Ok(())
}

async fn count(database: &Database, pages: &Namespace, field: &str) -> anyhow::Result<i64> {
    let page: RawDocumentBuf = database.find_one(pages, rawdoc! { "_id": "/" }).await?.expect("visited");
    Ok(page.get_i64(field)?)
}
