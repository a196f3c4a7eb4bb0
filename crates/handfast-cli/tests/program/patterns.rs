//! The commands of the patterns, each on a data directory, through a server, and through a server in front of
//! another one.

mod jobs;
mod ledger;
mod sync;
mod two_phase;
mod versions;

use std::process::Output;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use handfast_embedded::{EmbeddedStore, Options};
use handfast_mongodb::ConnectOptions;
use handfast_store::{DocumentStore, Namespace, Sources};
use serde_json::Value;

use crate::support::{FREE_PORT, Scratch, Serve, handfast};

/// The store of a test: a data directory, a server over one, or a server in front of that server.
struct Ground {
    scratch: Scratch,
    server: Option<Serve>,
    /// The server that the other one is in front of.
    _behind: Option<Serve>,
}

impl Ground {
    /// Runs a test on a data directory and through a server.
    async fn each(name: &str, test: impl AsyncFn(Ground) -> Result<()>) -> Result<()> {
        let scratch = Scratch::new(name)?;
        test(Ground { scratch, server: None, _behind: None }).await.context("on a data directory")?;
        let scratch = Scratch::new(&format!("{name}-server"))?;
        let server = Some(serve(&scratch, ["--data", "data"])?);
        test(Ground { scratch, server, _behind: None }).await.context("through a server")
    }

    /// Runs a test on all three.
    async fn each_and_front(name: &str, test: impl AsyncFn(Ground) -> Result<()>) -> Result<()> {
        Ground::each(name, &test).await?;
        let scratch = Scratch::new(&format!("{name}-front"))?;
        let behind = serve(&scratch, ["--data", "data"])?;
        let server = Some(serve(&scratch, ["--store", &format!("mongodb://{}", behind.address()?)])?);
        test(Ground { scratch, server, _behind: Some(behind) }).await.context("through a front")
    }

    /// Returns the flag and its value that name the store to a command.
    fn flag(&self) -> Result<[String; 2]> {
        Ok(match &self.server {
            None => ["--data".to_owned(), "data".to_owned()],
            Some(server) => ["--store".to_owned(), format!("mongodb://{}", server.address()?)],
        })
    }
}

fn serve(scratch: &Scratch, place: [&str; 2]) -> Result<Serve> {
    Serve::start(&mut handfast(scratch, &[&FREE_PORT[..], &place].concat()))
}

/// The store that a test fills, as an application would.
struct Store {
    shared: Arc<dyn DocumentStore>,
    embedded: Option<EmbeddedStore>,
    sources: Sources,
}

impl Store {
    async fn open(ground: &Ground) -> Result<Self> {
        let sources = Sources::system()?;
        if ground.server.is_some() {
            let [_, uri] = ground.flag()?;
            let options = ConnectOptions { accept_front: true, ..ConnectOptions::default() };
            let connection = handfast_mongodb::connect(&uri, sources.clone(), options).await?;
            return Ok(Store { shared: connection.store, embedded: None, sources });
        }
        let directory = ground.scratch.path("data");
        let embedded = EmbeddedStore::open(directory, sources.clone(), Options::default()).await?;
        Ok(Store { shared: Arc::new(embedded.clone()), embedded: Some(embedded), sources })
    }

    fn shared(&self) -> Arc<dyn DocumentStore> {
        Arc::clone(&self.shared)
    }

    async fn close(self) -> Result<()> {
        drop(self.shared);
        match self.embedded {
            Some(embedded) => Ok(embedded.close().await?),
            None => Ok(()),
        }
    }
}

fn namespace(collection: &str) -> Result<Namespace> {
    Ok(Namespace::new("db", collection)?)
}

/// Runs a command on this store.
fn output(ground: &Ground, arguments: &[&str]) -> Result<Output> {
    Ok(handfast(&ground.scratch, arguments).args(ground.flag()?).args(["--database", "db"]).output()?)
}

/// Returns the text that a successful command prints.
fn text(ground: &Ground, arguments: &[&str]) -> Result<String> {
    let output = output(ground, arguments)?;
    ensure!(output.status.code() == Some(0), "{arguments:?}: {output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns the JSON lines that a command prints, and its exit code.
fn json(ground: &Ground, arguments: &[&str]) -> Result<(Vec<Value>, Option<i32>)> {
    let output = output(ground, &[arguments, &["--json"]].concat())?;
    ensure!(output.status.code() < Some(100), "{arguments:?}: {output:?}");
    let lines = String::from_utf8(output.stdout)?;
    let lines = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>().context(lines.clone())?;
    Ok((lines, output.status.code()))
}

/// Returns the only line of a command that succeeds.
fn report(ground: &Ground, arguments: &[&str]) -> Result<Value> {
    let (mut lines, code) = json(ground, arguments)?;
    ensure!(code == Some(0) && lines.len() == 1, "{arguments:?}: {code:?} {lines:?}");
    lines.pop().context("a line")
}
