//! Renames a user with very many comments. The process dies in the middle, and every comment still gets the new name.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example talks, and is meant to stop aloud")]

use std::time::Duration;

use handfast::patterns::sync_flag::{Begun, Copied, SyncFlag, SyncOutcome};
use handfast::patterns::{Change, Link, SyncFlagOptions};
use handfast::prelude::*;

/// Comments of a run in a test; a million with `COMMENTS=1000000`.
const COMMENTS: u64 = 2_000;
/// Documents of one insert.
const BATCH: u64 = 1_000;

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path().join("data")).await?;
    let (users, comments) = (Namespace::new("site", "users")?, Namespace::new("site", "comments")?);
    let count = std::env::var("COMMENTS").ok().map_or(Ok(COMMENTS), |count| count.parse())?;
    database.insert_one(&users, rawdoc! { "_id": 1, "name": "John" }).await?;
    for first in (0..count).step_by(BATCH as usize) {
        let batch =
            (first..count.min(first + BATCH)).map(|id| rawdoc! { "_id": id as i64, "user": 1, "userName": "John" });
        database.insert(handfast::Insert::new(comments.clone(), batch.collect())).await?;
    }
    let named = async |name: &str| database.count_matching(&comments, rawdoc! { "userName": name }).await;

    // The comments were there before the sync flag: the first run gives each of them its version.
    let link = Link::new(comments.clone(), "user").field("name", "userName");
    let options = SyncFlagOptions { abandoned_after: Duration::from_millis(50), ..SyncFlagOptions::new([link]) };
    let names = SyncFlag::open(database.store(), users, options).await?;
    assert_eq!(names.backfill(100).await?.done, 1);

    // One update changes the name and sets the flag; then all comments are updated and the flag is removed.
    let outcome = names.change(names.token(), 1, &Change::new(doc! { "$set": { "name": "Mary" } })).await?;
    assert!(matches!(outcome, SyncOutcome::Synced { version: 2 }));
    assert_eq!(named("Mary").await?, count);

    // The process dies after that first update.
    let dying = names.within(database.store());
    let begun = dying.begin(names.token(), 1, &Change::new(doc! { "$set": { "name": "Anna" } })).await?;
    assert_eq!(begun, Begun::Flagged { version: 3 });
    assert_eq!((named("Mary").await?, names.staleness().await?.mains), (count, 1));

    // Readers of a comment see the new name, and a new comment has it.
    let comment = names.read_copy(&comments, 0_i64).await?.expect("inserted above");
    assert_eq!(comment.get_str("userName")?, "Anna");
    let copied = names.insert_copy(&comments, doc! { "_id": "new", "user": 1 }).await?;
    assert!(matches!(copied, Copied::Settled { .. }));
    assert_eq!(named("Anna").await?, 2);

    // The sweeper finds the flag and updates the other comments.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(names.sweep(100).await?.done, 1);
    assert_eq!(named("Anna").await?, count + 1);
    let audit = names.drift(1_000, |stale| println!("{stale:?}")).await?;
    assert_eq!((audit.copies, audit.stale), (count + 1, 0));
    println!("{} comments say Anna", count + 1);
    Ok(())
}
