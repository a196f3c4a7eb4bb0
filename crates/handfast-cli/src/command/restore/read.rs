//! Reads a dump.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use bson::{Bson, RawDocumentBuf};
use handfast_mql::{Code, depth};
use handfast_server::auth::is_protected;
use handfast_store::default_collation::copied_index;
use handfast_store::ticket::NESTING_OF_RECORD;
use handfast_store::view::{DEFINITIONS, namespaces_read};
use handfast_store::{
    CreateIndexes, DocumentStore, Durability, Insert, Namespace, StoreExt as _, Ticket, Validation, WriteError,
};
use indicatif::ProgressBar;
use serde::Serialize;

use super::progress::RestoreProgress;
use super::session_records;
use crate::command::dump::arguments::Selection;
use crate::command::dump::layout::{METADATA, Metadata, decode_name};
use crate::command::dump::{Totals, count};
use crate::exit::Usage;
use crate::listing::{counted, listed};

/// Documents inserted at a time: as many as a driver sends, or fewer if they are large.
const BATCH_DOCUMENTS_MAX: usize = 1000;
/// Bytes inserted at a time.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// The longest document: MongoDB's 16 MiB, and the 16 KiB that it allows its own documents beyond.
const DOCUMENT_BYTES_MAX: usize = (16 << 20) + (16 << 10);
/// The longest line of JSON. Canonical Extended JSON makes a number six times as long as in BSON; eight is room enough.
const LINE_BYTES_MAX: u64 = 8 * DOCUMENT_BYTES_MAX as u64;

/// A collection's files in a dump.
#[derive(Debug)]
pub(crate) struct DumpedCollection {
    namespace: Namespace,
    /// The file of the documents; `None` for a view.
    documents: Option<PathBuf>,
    metadata: Option<Metadata>,
}

/// Counts of documents that were refused.
#[derive(Debug, Default)]
struct Refused {
    count: u64,
    first: Option<String>,
    /// Whether the first was refused as a duplicate of its `_id` or a unique key.
    first_is_there: bool,
}

/// Inserts collections into the store, each with its indexes. Documents are durable when this returns. `restored` is the progress.
///
/// Cancellation: what has been read stays; a repetition with `drop_first` starts anew.
///
/// # Errors
/// The files are no dump; the store fails.
pub(crate) async fn read_dump(
    store: &dyn DocumentStore,
    sources: &[DumpedCollection],
    drop_first: bool,
    restored: &mut RestoreProgress,
    progress: &ProgressBar,
) -> Result<RestoreOutcome> {
    restored.begin(sources.len());
    let outcome = RestoreOutcome { totals: Totals::default(), refused: Refused::default() };
    let mut restore = Restore { store, drop_first, restored, progress, outcome };
    for source in sources {
        progress.set_message(source.namespace.to_string());
        restore.restored.collection(&source.namespace);
        restore.collection(source).await.with_context(|| format!("cannot restore {}", source.namespace))?;
        restore.restored.collection_is_whole();
    }
    store.flush().await?;
    Ok(restore.outcome)
}

/// A restore that is under way.
struct Restore<'a> {
    store: &'a dyn DocumentStore,
    drop_first: bool,
    restored: &'a mut RestoreProgress,
    progress: &'a ProgressBar,
    outcome: RestoreOutcome,
}

/// The outcome of a restore that read all files.
#[derive(Debug)]
pub(crate) struct RestoreOutcome {
    totals: Totals,
    refused: Refused,
}

/// The report for programs.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'o> {
    #[serde(flatten)]
    pub(crate) totals: Totals,
    /// Documents that were refused.
    refused: u64,
    /// The first refused document, and why.
    first: Option<&'o str>,
}

impl RestoreOutcome {
    /// Returns the report for programs.
    pub(crate) fn report(&self) -> Report<'_> {
        Report { totals: self.totals, refused: self.refused.count, first: self.refused.first.as_deref() }
    }

    /// Returns the counts.
    ///
    /// # Errors
    /// Fails if documents were refused; all others are restored.
    pub(crate) fn totals(self) -> Result<Totals> {
        let RestoreOutcome { totals, refused } = self;
        match refused.first {
            Some(first) => {
                let advice = match refused.first_is_there {
                    true => "; --drop drops each collection before it is restored",
                    false => "",
                };
                let (is_in, count) = (totals.documents, refused.count);
                bail!("restored {}, refused {count}; the first: {first}{advice}", counted(is_in, "documents"))
            }
            None => Ok(totals),
        }
    }
}

impl Restore<'_> {
    async fn collection(&mut self, source: &DumpedCollection) -> Result<()> {
        let store = self.store;
        if self.drop_first {
            store.drop_collection(&source.namespace).await?;
        }
        let options = source.metadata.as_ref().map(|metadata| metadata.options.clone()).unwrap_or_default();
        match store.create_collection(&source.namespace, options).await {
            // A collection that is there already keeps its options.
            Err(error) if error.code() == Code::NamespaceExists && source.documents.is_some() => {}
            created => created?,
        }
        // Indexes before documents: a store that builds them afterwards would need memory for all entries at once.
        let indexes = source.metadata.as_ref().map(|metadata| metadata.indexes.clone()).unwrap_or_default();
        if !indexes.is_empty() {
            let collation = store.collection_options(&source.namespace).await?.collation;
            let indexes = indexes.into_iter().map(|spec| copied_index(spec, collation.as_ref())).collect();
            store.create_indexes(CreateIndexes { namespace: source.namespace.clone(), indexes }).await?;
        }
        let Some(documents) = &source.documents else {
            self.outcome.totals.collections += 1;
            return Ok(());
        };
        let mut reader = Reader::open(documents)?;
        let are_tickets = source.namespace == Ticket::namespace()?;
        loop {
            let batch = reader.batch().with_context(|| format!("{}", documents.display()))?;
            if batch.is_empty() {
                break;
            }
            let bytes = batch.iter().map(|document| document.as_bytes().len() as u64).sum();
            let records = if are_tickets { batch.clone() } else { Vec::new() };
            // Synced once at the end, instead of once a batch.
            let durability = Durability::Memory;
            // Documents may be older than the validator.
            let validation = Validation::Bypass;
            let insert =
                Insert { ordered: false, durability, validation, ..Insert::new(source.namespace.clone(), batch) };
            self.restored.batch();
            let inserted = store.insert(insert).await?;
            count(&mut self.outcome.totals, self.progress, inserted.inserted, bytes);
            self.restored.documents(inserted.inserted);
            let errors = if are_tickets {
                session_records::replace_older(store, &records, inserted.errors).await?
            } else {
                inserted.errors
            };
            self.outcome.refused.add(&source.namespace, &errors);
            tokio::task::yield_now().await;
        }
        self.outcome.totals.collections += 1;
        self.outcome.totals.indexes += store.list_indexes(&source.namespace).await?.len() as u64;
        Ok(())
    }
}

impl Refused {
    fn add(&mut self, namespace: &Namespace, errors: &[WriteError]) {
        self.count += errors.len() as u64;
        if let (None, Some(error)) = (&self.first, errors.first()) {
            self.first = Some(format!("{namespace}: {}", error.error));
            self.first_is_there = error.error.code() == Code::DuplicateKey;
        }
    }
}

/// Returns the selected collections of a dump, by name.
///
/// # Errors
/// Fails if no collection is selected, or if a name or metadata cannot be read.
pub(crate) fn find_sources(dump: &Path, selection: &Selection) -> Result<Vec<DumpedCollection>> {
    ensure!(
        !dump.is_file(),
        Usage(format!("--from: {} is a file: name the directory that `dump` wrote; {LAYOUT}", dump.display()))
    );
    let (mut sources, mut views, mut databases, mut others) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for directory in entries(dump).context("--from")?.into_iter().filter(|path| path.is_dir()) {
        let database = decode_name(name_of(&directory)?)?;
        databases.push(database.clone());
        if !selection.has_database(&database) {
            continue;
        }
        for documents in entries(&directory)? {
            let name = name_of(&documents)?;
            if let Some(stem) = name.strip_suffix(METADATA) {
                let view = check_documents(&directory, &database, stem, selection)?;
                views.extend(view);
                continue;
            }
            let stem = name.strip_suffix(".bson").or_else(|| name.strip_suffix(".json"));
            let Some(stem) = stem else { continue };
            let metadata = read_metadata(&directory.join(format!("{stem}{METADATA}")))?;
            let reported = metadata.as_ref().and_then(|metadata| metadata.collection.clone());
            let collection = reported.map_or_else(|| decode_name(stem), Ok)?;
            if collection == DEFINITIONS {
                // The views have metadata of their own.
                continue;
            }
            if selection.has_collection(&collection) {
                let namespace = Namespace::new(&database, collection)?;
                sources.push(DumpedCollection { namespace, documents: Some(documents), metadata });
            } else {
                others.push(collection);
            }
        }
    }
    // Views come after what they read.
    sources.append(&mut views);
    ensure!(!sources.is_empty(), nothing_there(dump, selection, &databases, &others));
    Ok(sources)
}

/// The layout of a dump, for an error.
const LAYOUT: &str = "a dump has a directory for each database, with NAME.bson or NAME.json for each collection";

/// Returns the error that there is nothing to restore: a missing name, or no dump.
fn nothing_there(dump: &Path, selection: &Selection, databases: &[String], collections: &[String]) -> String {
    let dump = dump.display();
    match (&selection.database, &selection.collection) {
        (Some(database), _) if !databases.is_empty() && !databases.contains(database) => {
            format!("nothing to restore in {dump}: there is no database '{database}'; {}", listed(databases))
        }
        (Some(database), Some(collection)) if !collections.is_empty() => {
            format!("nothing to restore in {dump}: there is no '{collection}' in {database}; {}", listed(collections))
        }
        _ => format!("--from: nothing to restore in {dump}: {LAYOUT}"),
    }
}

/// Fails if the documents of a collection are missing in the dump. Returns the view, if the metadata are those of a selected one.
fn check_documents(
    directory: &Path,
    database: &str,
    stem: &str,
    selection: &Selection,
) -> Result<Option<DumpedCollection>> {
    let has = |ending| directory.join(format!("{stem}{ending}")).exists();
    // `orders.metadata.json` is the metadata of `orders`, and has no documents of `orders.metadata`.
    if has(".bson") || (has(".json") && !format!("{stem}.json").ends_with(METADATA)) {
        return Ok(None);
    }
    let path = directory.join(format!("{stem}{METADATA}"));
    let metadata = read_metadata(&path)?;
    let reported = metadata.as_ref().and_then(|metadata| metadata.collection.clone());
    let collection = reported.map_or_else(|| decode_name(stem), Ok)?;
    if collection == DEFINITIONS {
        return Ok(None);
    }
    if let Some(definition) = metadata.as_ref().and_then(|metadata| metadata.options.view.as_ref()) {
        let read = namespaces_read(database, definition).with_context(|| path.display().to_string())?;
        if let Some(protected) = read.iter().find(|read| is_protected(read)) {
            bail!(
                "{}: a view cannot read {protected}, which has the secrets or the records of the server: remove this file to restore \
                 the rest",
                path.display()
            );
        }
        let view = |namespace| DumpedCollection { namespace, documents: None, metadata };
        return match selection.has_collection(&collection) {
            true => Ok(Some(view(Namespace::new(database, collection)?))),
            false => Ok(None),
        };
    }
    ensure!(
        !selection.has_collection(&collection),
        "{} has no documents beside it ({stem}.bson or {stem}.json): the dump is incomplete; remove this file to restore the \
         rest",
        path.display()
    );
    Ok(None)
}

fn read_metadata(path: &Path) -> Result<Option<Metadata>> {
    match fs::read_to_string(path) {
        Ok(text) => Metadata::read(&text).map(Some).with_context(|| format!("{}", path.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let read = || -> std::io::Result<Vec<PathBuf>> {
        let mut paths = fs::read_dir(directory)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<std::io::Result<Vec<_>>>()?;
        paths.sort();
        Ok(paths)
    };
    read().with_context(|| format!("cannot read {}", directory.display()))
}

fn name_of(path: &Path) -> Result<&str> {
    path.file_name().and_then(|name| name.to_str()).with_context(|| format!("the name {} is not UTF-8", path.display()))
}

/// Reads the documents of a file.
pub(super) struct Reader<F> {
    file: F,
    read: fn(&mut F) -> Result<Option<RawDocumentBuf>>,
    /// Documents read so far.
    read_before: u64,
}

impl Reader<BufReader<File>> {
    fn open(path: &Path) -> Result<Self> {
        let file = BufReader::new(File::open(path).with_context(|| format!("cannot read {}", path.display()))?);
        Ok(match path.extension().is_some_and(|extension| extension == "json") {
            true => Reader::json(file),
            false => Reader::bson(file),
        })
    }
}

impl<F: BufRead> Reader<F> {
    pub(super) fn bson(file: F) -> Self {
        Reader { file, read: read_bson, read_before: 0 }
    }

    pub(super) fn json(file: F) -> Self {
        Reader { file, read: read_json, read_before: 0 }
    }

    /// Returns the next documents; none at the end.
    pub(super) fn batch(&mut self) -> Result<Vec<RawDocumentBuf>> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < BATCH_DOCUMENTS_MAX && bytes < BATCH_BYTES_MAX {
            let next = (self.read)(&mut self.file).with_context(|| format!("document {}", self.read_before + 1));
            let Some(document) = next? else { break };
            self.read_before += 1;
            bytes += document.as_bytes().len();
            batch.push(document);
        }
        Ok(batch)
    }
}

/// Reads a document of BSON: its first four bytes are its length, including themselves.
fn read_bson(file: &mut impl BufRead) -> Result<Option<RawDocumentBuf>> {
    if file.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let mut head = [0; 4];
    file.read_exact(&mut head).context("the file ends within a document")?;
    let length = usize::try_from(i32::from_le_bytes(head)).unwrap_or(0);
    ensure!(
        (5..=DOCUMENT_BYTES_MAX).contains(&length),
        "a document of {length} bytes: the file is not BSON, or the document is too long"
    );
    let mut bytes = vec![0; length];
    bytes[..4].copy_from_slice(&head);
    file.read_exact(&mut bytes[4..]).context("the file ends within a document")?;
    checked(bytes).map(Some)
}

/// Reads a line of Extended JSON.
fn read_json(file: &mut impl BufRead) -> Result<Option<RawDocumentBuf>> {
    loop {
        let mut line = Vec::new();
        if file.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        ensure!(line.len() as u64 <= LINE_BYTES_MAX, "a line is longer than {LINE_BYTES_MAX} bytes");
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        // The parser refuses nesting beyond 128 by itself.
        let value: serde_json::Value = serde_json::from_slice(&line).map_err(|error| in_line(&error))?;
        let Bson::Document(document) = Bson::try_from(value)? else { bail!("a line is not a JSON object") };
        return checked(RawDocumentBuf::try_from(&document)?.into_bytes()).map(Some);
    }
}

/// Returns the parser's message without its line number, which is always 1.
fn in_line(error: &serde_json::Error) -> anyhow::Error {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default();
    anyhow!("{what}, at column {}", error.column())
}

/// Checks the depth of a document without recursion before it is used. A record of a session may be a little larger and deeper than a
/// document; the store checks that.
fn checked(bytes: Vec<u8>) -> Result<RawDocumentBuf> {
    let nesting_max = depth::NESTING_MAX + NESTING_OF_RECORD;
    depth::check(&bytes, depth::Limits { bytes_max: DOCUMENT_BYTES_MAX, nesting_max })?;
    Ok(RawDocumentBuf::from_bytes(bytes)?)
}
