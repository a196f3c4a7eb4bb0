//! `dbHash`: returns a hash of each collection of a database, by which two servers can be compared.
//!
//! It is MongoDB's: MD5 over the documents in the order of their `_id`, and over the hashes of the collections in the order of their
//! names. So a copy of a MongoDB database has the same hash, as long as the fields of its documents have the same order. The
//! collections are read one after the other, so they should not be written meanwhile.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use bson::rawdoc;
use bson::{RawBsonRef, RawDocumentBuf};
use handfast_mql::Code;
use handfast_store::{BatchLimit, Find, Namespace};
use md5::{Digest, Md5};

use super::{Access, Call, Command, Properties};
use crate::auth::guard::{Needs, is_protected};
use crate::auth::role::Action;
use crate::error::{CommandError, CommandResult};
use crate::reply::Answer;
use crate::writer::{Uuid, Writer};

pub(crate) const COMMAND: Command = Command {
    name: "dbHash",
    aliases: &["dbhash"],
    help: "returns a hash of each collection of a database",
    access: Access::Read,
    needs: Needs::Database(Action::Find),
    admin_only: false,
    confidential: false,
    versioned: false,
    properties: Properties::DEFAULT,
    run: |call| Box::pin(run(call)),
};

async fn run(call: &Call<'_>) -> CommandResult<Answer> {
    let mut arguments = call.arguments("dbHash");
    let asked = arguments.array("collections")?;
    // There are no temporary collections.
    arguments.lenient_flag("skipTempCollections")?;
    arguments.finish()?;
    let mut names = BTreeSet::new();
    for name in asked.into_iter().flatten() {
        let RawBsonRef::String(name) = name? else {
            return Err(CommandError::new(Code::BadValue, "collections entries have to be strings"));
        };
        names.insert(name);
    }
    let began = call.shared.now();
    let database = call.request.database;
    let mut hashes = Vec::new();
    for collection in call.store().list_collections(database).await? {
        let namespace = Namespace::new(database, &collection.name)?;
        let is_meant = names.is_empty() || names.contains(collection.name.as_str());
        // Nobody may read the collections of users and outcomes by a command that does not name them.
        if is_meant && collection.options.view.is_none() && !is_protected(&namespace) {
            hashes.push((hash(call, namespace).await?, collection));
        }
    }
    hashes.sort_by(|(_, one), (_, other)| one.name.cmp(&other.name));
    let mut whole = Md5::new();
    let mut writer = Writer::new();
    writer.put("host", super::host_info::host_name()).begin_document("collections");
    for (hash, collection) in &hashes {
        whole.update(hash);
        writer.put(&collection.name, hash);
    }
    writer.end().array("capped", std::iter::empty::<&str>()).begin_document("uuids");
    for (_, collection) in &hashes {
        writer.put(&collection.name, Uuid(collection.uuid));
    }
    writer.end().put("md5", hexadecimal(whole));
    let took = call.shared.now().saturating_sub(began);
    writer.put("timeMillis", i32::try_from(took.as_millis()).unwrap_or(i32::MAX));
    Ok(writer.into())
}

/// The documents that are hashed at once, while other work of the thread waits.
const PAGE: BatchLimit = BatchLimit { documents: 1_000, bytes: 256 * 1024 };

/// Returns the hash of the documents of a collection.
async fn hash(call: &Call<'_>, namespace: Namespace) -> CommandResult<String> {
    let mut find = Find::new(namespace, RawDocumentBuf::new());
    find.sort = rawdoc! { "_id": 1 };
    let mut cursor = call.store().find(find).await?;
    let mut hash = Md5::new();
    loop {
        let page = cursor.next_page(PAGE).await?;
        page.documents.iter().for_each(|document| hash.update(document.as_bytes()));
        if page.exhausted {
            return Ok(hexadecimal(hash));
        }
        tokio::task::yield_now().await;
    }
}

fn hexadecimal(hash: Md5) -> String {
    hash.finalize().iter().fold(String::with_capacity(32), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
