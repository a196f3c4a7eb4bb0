//! Opens a database in a directory, writes a document and reads it back.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "an example talks, and is meant to stop aloud")]

use handfast::prelude::*;

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path().join("data")).await?;
    let cities = Namespace::new("atlas", "cities")?;

    database.insert_one(&cities, rawdoc! { "_id": "Delft", "country": "NL", "people": 106_000 }).await?;
    database.insert_one(&cities, rawdoc! { "_id": "Aarhus", "country": "DK", "people": 290_000 }).await?;

    // Filters, sorts, projections, updates and aggregation of the query language work here.
    let find =
        Find { sort: rawdoc! { "people": -1 }, ..Find::new(cities.clone(), rawdoc! { "people": { "$gt": 100_000 } }) };
    let found = database.find_all(find).await?;
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].get_str("_id")?, "Aarhus");
    println!("the largest is {}", found[0].get_str("_id")?);
    Ok(())
}
