use handfast::patterns::{Change, ExactlyOnce};
use handfast::prelude::*;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let database = Database::open(directory.path()).await?;
    let pages = Namespace::new("site", "pages")?;
    let views = ExactlyOnce::open(database.store(), pages.clone(), Default::default()).await?;

    let token = views.token();
    let view = Change::increment("views", 1).or_insert();
    println!("{:?}", views.apply(token, "/", &view).await?);
    println!("{:?}", views.apply(token, "/", &view).await?);

    let page = database.find_one(&pages, rawdoc! { "_id": "/" }).await?.expect("inserted above");
    println!("{} view", page.get_i64("views")?);
    Ok(())
}
