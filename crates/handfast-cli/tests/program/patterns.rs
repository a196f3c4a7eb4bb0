//! The commands of the patterns, on a data directory and through a server.

mod jobs;
mod ledger;
mod sync;
mod two_phase;
mod versions;

use std::process::Output;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use handfast_embedded::{EmbeddedStore, Options};
use handfast_store::{DocumentStore, Namespace, Sources};
use serde_json::Value;

use crate::support::{Scratch, Serve, assert_one_line, handfast};

/// A data directory that a test fills, as an application would.
struct Store {
    embedded: EmbeddedStore,
    sources: Sources,
}

impl Store {
    async fn open(scratch: &Scratch) -> Result<Self> {
        let sources = Sources::system()?;
        let embedded = EmbeddedStore::open(scratch.path("data"), sources.clone(), Options::default()).await?;
        Ok(Store { embedded, sources })
    }

    fn shared(&self) -> Arc<dyn DocumentStore> {
        Arc::new(self.embedded.clone())
    }

    async fn close(self) -> Result<()> {
        Ok(self.embedded.close().await?)
    }
}

fn place(collection: &str) -> Result<Namespace> {
    Ok(Namespace::new("db", collection)?)
}

/// Runs a command on the data directory.
fn output(scratch: &Scratch, arguments: &[&str]) -> Result<Output> {
    Ok(handfast(scratch, arguments).args(["--data", "data", "--database", "db"]).output()?)
}

/// What a command that ends well says to people.
fn text(scratch: &Scratch, arguments: &[&str]) -> Result<String> {
    let output = output(scratch, arguments)?;
    ensure!(output.status.code() == Some(0), "{arguments:?}: {output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Its lines of JSON, and how it ended.
fn json(scratch: &Scratch, arguments: &[&str]) -> Result<(Vec<Value>, Option<i32>)> {
    let output = output(scratch, &[arguments, &["--json"]].concat())?;
    ensure!(output.status.code() < Some(100), "{arguments:?}: {output:?}");
    let lines = String::from_utf8(output.stdout)?;
    let lines = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>().context(lines.clone())?;
    Ok((lines, output.status.code()))
}

/// The one line of a command that ends well.
fn report(scratch: &Scratch, arguments: &[&str]) -> Result<Value> {
    let (mut lines, code) = json(scratch, arguments)?;
    ensure!(code == Some(0) && lines.len() == 1, "{arguments:?}: {code:?} {lines:?}");
    lines.pop().context("a line")
}
