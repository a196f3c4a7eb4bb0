//! Logins and roles; see tests/clients/login/login.py.

use anyhow::{Context as _, bail, ensure};
use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::error::ErrorKind;
use mongodb::options::{ClientOptions, Credential, Tls, TlsOptions};

async fn client(uri: &str, user: Option<(&str, &str)>) -> anyhow::Result<Client> {
    let mut options = ClientOptions::parse(uri).await?;
    if let Ok(ca) = std::env::var("TLS_CA") {
        options.tls = Some(Tls::Enabled(TlsOptions::builder().ca_file_path(std::path::PathBuf::from(ca)).build()));
    }
    options.credential = user
        .map(|(name, password)| Credential::builder().username(name.to_owned()).password(password.to_owned()).build());
    Ok(Client::with_options(options)?)
}

/// Returns the code with which a command is refused.
async fn code(client: &Client, database: &str, command: Document) -> anyhow::Result<i32> {
    let error = client.database(database).run_command(command).await.err().context("not refused")?;
    match &*error.kind {
        ErrorKind::Command(refused) => Ok(refused.code),
        // The driver keeps only the message of a failed login.
        ErrorKind::Authentication { message, .. } if message.contains("Authentication failed") => Ok(18),
        _ => bail!("refused otherwise: {error:?}"),
    }
}

pub(crate) async fn run(uri: &str) -> anyhow::Result<()> {
    let password = std::env::var("BOSS_PASSWORD")?;
    let boss = client(uri, Some(("boss", &password))).await?;
    let shop = boss.database("rust_login");
    shop.collection::<Document>("c").insert_one(doc! { "_id": 1 }).await?;
    shop.run_command(doc! { "createUser": "ann", "pwd": "secret", "roles": ["read"] }).await?;
    ensure!(code(&boss, "rust_login", doc! { "createUser": "ann", "pwd": "x", "roles": [] }).await? == 51003);
    for (name, password) in [("boss", "wrong"), ("nobody", "wrong"), ("ann", "secret")] {
        let stranger = client(uri, Some((name, password))).await?;
        ensure!(code(&stranger, "admin", doc! { "ping": 1 }).await? == 18, "{name}");
    }
    let stranger = client(uri, None).await?;
    stranger.database("admin").run_command(doc! { "ping": 1 }).await?;
    ensure!(code(&stranger, "rust_login", doc! { "find": "c" }).await? == 13);
    shop.run_command(doc! { "dropUser": "ann" }).await?;
    shop.drop().await?;
    Ok(())
}
