use handfast::patterns::{Change, Link, SyncFlag, SyncFlagOptions};
use handfast::prelude::*;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path()).await?;
    let (users, comments) = (Namespace::new("site", "users")?, Namespace::new("site", "comments")?);
    database.insert_one(&users, rawdoc! { "_id": 1, "name": "John" }).await?;

    let link = Link::new(comments.clone(), "user").field("name", "userName");
    let names = SyncFlag::open(database.store(), users, SyncFlagOptions::new([link])).await?;
    let _ = names.insert_copy(&comments, doc! { "_id": 1, "user": 1, "text": "first" }).await?;

    let rename = Change::new(doc! { "$set": { "name": "Mary" } });
    println!("{:?}", names.change(names.token(), 1, &rename).await?);
    let comment = database.find_one(&comments, rawdoc! { "_id": 1 }).await?.expect("inserted above");
    println!("a comment by {}", comment.get_str("userName")?);
    Ok(())
}
