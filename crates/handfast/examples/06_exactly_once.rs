//! A page counts its visits while one answer in five gets lost: exactly, because each visit has a token.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example talks, and is meant to stop aloud")]

use std::sync::Arc;
use std::time::Duration;

use handfast::bson::RawDocumentBuf;
use handfast::patterns::{Change, ExactlyOnce, Outcome, TwoStep};
use handfast::prelude::*;
use handfast::{Applied, Sources};

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path().join("data")).await?;
    let store = Arc::new((*database).clone());
    let pages = Namespace::new("site", "pages")?;

    // One round trip. Who hears nothing asks again, with the same token.
    let visits = ExactlyOnce::open(store.clone(), pages.clone(), Sources::system()?, Default::default()).await?;
    let visit = Change::increment("visits", 1).or_insert();
    for number in 0..20 {
        let token = visits.token();
        let outcome = visits.apply(token, "/", &visit).await?;
        assert_eq!(outcome, Outcome::Applied);
        if number % 5 == 0 {
            // As if the answer had not arrived.
            assert_eq!(visits.apply(token, "/", &visit).await?, Outcome::AlreadyApplied);
        }
    }
    assert_eq!(count(&database, &pages, "visits").await?, 20);

    // Two steps. Nobody asks again: a process died after the first step, and the clean-up finishes it.
    let likes =
        TwoStep::open(store, pages.clone(), Sources::system()?, Change::increment("likes", 1), Default::default());
    let likes = likes.await?;
    assert_eq!(likes.apply(likes.token(), "/").await?, Outcome::Applied);
    let first_step_only = rawdoc! { "$addToSet": { "pending": likes.token().0 } };
    database.update_one(&pages, rawdoc! { "_id": "/" }, first_step_only).await?;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let round = likes.clean_up(Duration::ZERO, 100).await?;
    assert_eq!((round.done, round.failed), (1, 0));
    assert_eq!(count(&database, &pages, "likes").await?, 2);

    // An update that the store refuses is an error, and certainly not applied.
    let refused = visits.apply(visits.token(), "/", &Change::increment("_id", 1)).await.expect_err("not a number");
    assert_eq!(refused.applied(), Applied::No);
    println!("20 visits and 2 likes, each counted once");
    Ok(())
}

async fn count(database: &Database, pages: &Namespace, field: &str) -> anyhow::Result<i64> {
    let page: RawDocumentBuf = database.find_one(pages, rawdoc! { "_id": "/" }).await?.expect("visited");
    Ok(page.get_i64(field)?)
}
