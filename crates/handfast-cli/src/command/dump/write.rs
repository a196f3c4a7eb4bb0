//! Writes a dump.

use std::fs::{self, File, TryLockError};
use std::io::{BufWriter, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use bson::{Bson, Document, RawDocument, RawDocumentBuf};
use handfast_embedded::{EmbeddedStore, Salvage, SalvagedPage};
use handfast_store::{BatchLimit, CollectionInfo, Cursor, DocumentStore, Find, Namespace, Page};
use indicatif::ProgressBar;

use super::arguments::{DumpFormat, Selection};
use super::layout::{METADATA, Metadata, collection_file_name, file_name};
use super::{Dumped, count};
use crate::advice::Advised;
use crate::console::write_remark;
use crate::exit::{Exit, Usage};
use crate::listing::listed;

/// The bounds of a page of documents.
const PAGE: BatchLimit = BatchLimit { documents: 1000, bytes: 4 << 20 };

/// A database and its collections that are to be dumped.
#[derive(Debug)]
pub(crate) struct SelectedDatabase {
    database: String,
    collections: Vec<CollectionInfo>,
}

/// Returns the selected databases and collections.
///
/// # Errors
/// A named database or collection is missing; the store fails.
pub(crate) async fn find_collections(
    store: &dyn DocumentStore,
    selection: &Selection,
) -> Result<Vec<SelectedDatabase>> {
    let databases = store.list_databases().await?;
    if let Some(name) = &selection.database {
        ensure!(databases.contains(name), "there is no database '{name}'; {}", listed(&databases));
    }
    let mut chosen = Vec::new();
    for database in databases.into_iter().filter(|name| selection.has_database(name)) {
        let mut collections = store.list_collections(&database).await?;
        if let Some(name) = &selection.collection {
            let names: Vec<String> = collections.iter().map(|info| info.name.clone()).collect();
            ensure!(names.contains(name), "there is no collection '{name}' in {database}; {}", listed(&names));
            collections.retain(|info| info.name == *name);
        }
        chosen.push(SelectedDatabase { database, collections });
    }
    Ok(chosen)
}

/// Counts the documents, for the progress bar.
pub(crate) async fn count_documents(store: &dyn DocumentStore, chosen: &[SelectedDatabase]) -> Result<u64> {
    let mut count = 0;
    for SelectedDatabase { database, collections } in chosen {
        for info in collections {
            count += store.collection_stats(&Namespace::new(database, &info.name)?).await?.count;
        }
    }
    Ok(count)
}

/// The treatment of documents that cannot be read.
pub(crate) enum Damaged<'s> {
    /// Fails, because the dump would be incomplete.
    Refuse,
    /// Leaves them out, and names them.
    Skip(&'s EmbeddedStore),
}

/// Writes collections to a directory that is missing or empty.
///
/// Cancellation: what has been written is removed.
///
/// # Errors
/// The directory is not empty; the store or the file system fails.
pub(crate) async fn write_dump(
    store: &dyn DocumentStore,
    damaged: Damaged<'_>,
    target: &Path,
    format: DumpFormat,
    chosen: &[SelectedDatabase],
    progress: &ProgressBar,
) -> Result<Dumped> {
    let unfinished = UnfinishedDirectory::begin(target)?;
    let mut dump = Dump { store, damaged, format, progress, dumped: Dumped::default() };
    for (number, SelectedDatabase { database, collections }) in chosen.iter().enumerate() {
        let directory = unfinished.path.join(file_name(database, number));
        create_directory(&directory)?;
        for (number, info) in collections.iter().enumerate() {
            let file = directory.join(collection_file_name(&info.name, number, format));
            let namespace = Namespace::new(database, &info.name)?;
            progress.set_message(namespace.to_string());
            dump.collection(&namespace, info, &file).await.map_err(|error| cannot_dump(&namespace, error))?;
        }
        sync_directory(&directory)?;
    }
    unfinished.finish(target)?;
    Ok(dump.dumped)
}

fn cannot_dump(namespace: &Namespace, error: anyhow::Error) -> anyhow::Error {
    let what = format!("cannot dump {namespace}");
    match Exit::of(&error) {
        Exit::GuaranteeBroken => error.context(Advised { what, advice: "--skip-damaged writes what can be read" }),
        _ => error.context(what),
    }
}

struct Dump<'d> {
    store: &'d dyn DocumentStore,
    damaged: Damaged<'d>,
    format: DumpFormat,
    progress: &'d ProgressBar,
    dumped: Dumped,
}

impl Dump<'_> {
    async fn collection(&mut self, namespace: &Namespace, info: &CollectionInfo, file: &Path) -> Result<()> {
        let is_view = info.options.view.is_some();
        let indexes = if is_view { Vec::new() } else { self.store.list_indexes(namespace).await? };
        write_file(
            &with_ending(file, METADATA),
            |out| Ok(out.write_all(Metadata::write(info, &indexes)?.as_bytes())?),
        )?;
        if is_view {
            self.dumped.totals.collections += 1;
            return Ok(());
        }

        let path = with_ending(file, ending(self.format));
        let mut out = BufWriter::new(File::create_new(&path).with_context(|| at(&path))?);
        let mut source = match self.damaged {
            Damaged::Refuse => {
                DocumentSource::All(self.store.find(Find::new(namespace.clone(), RawDocumentBuf::new())).await?)
            }
            Damaged::Skip(store) => DocumentSource::Rest(Box::new(store.salvage(namespace))),
        };
        loop {
            let page = source.next_page().await?;
            for document in &page.documents {
                write_document(&mut out, document, self.format).with_context(|| at(&path))?;
                count(&mut self.dumped.totals, self.progress, 1, document.as_bytes().len() as u64);
            }
            for skipped in &page.skipped {
                self.dumped.skipped += 1;
                self.progress.suspend(|| write_remark(&format!("skipped in {namespace}: {skipped}")));
            }
            if page.exhausted {
                break;
            }
            // Lets a Ctrl-C be handled, even if the store never waits.
            tokio::task::yield_now().await;
        }
        out.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all().with_context(|| at(&path))?;
        self.dumped.totals.collections += 1;
        self.dumped.totals.indexes += indexes.len() as u64;
        Ok(())
    }
}

/// The source of a collection's documents.
enum DocumentSource {
    /// A cursor, which fails at damage.
    All(Box<dyn Cursor>),
    /// A reader that continues after damage.
    Rest(Box<Salvage>),
}

impl DocumentSource {
    async fn next_page(&mut self) -> Result<SalvagedPage> {
        Ok(match self {
            DocumentSource::All(cursor) => {
                let Page { documents, exhausted } = cursor.next_page(PAGE).await?;
                SalvagedPage { documents, skipped: Vec::new(), exhausted }
            }
            DocumentSource::Rest(salvage) => salvage.next_page(PAGE).await?,
        })
    }
}

fn write_document(out: &mut impl Write, document: &RawDocument, format: DumpFormat) -> Result<()> {
    match format {
        DumpFormat::Bson => out.write_all(document.as_bytes())?,
        DumpFormat::Json => {
            let value = Bson::Document(Document::try_from(document)?).into_canonical_extjson();
            serde_json::to_writer(&mut *out, &value)?;
            out.write_all(b"\n")?;
        }
    }
    Ok(())
}

/// Returns the ending of a file of documents.
pub(super) fn ending(format: DumpFormat) -> &'static str {
    match format {
        DumpFormat::Bson => ".bson",
        DumpFormat::Json => ".json",
    }
}

/// A directory under a temporary name, which is removed unless it is finished. The directory of the same name that a killed dump has left
/// is removed first.
struct UnfinishedDirectory {
    path: PathBuf,
    /// The lock, which keeps other processes from removing the directory as the leftover of a killed dump.
    _held: File,
    finished: bool,
}

impl UnfinishedDirectory {
    fn begin(target: &Path) -> Result<Self> {
        if fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Usage(format!("{} is not empty; choose another directory with --to", target.display())).into());
        }
        let name =
            target.file_name().with_context(|| format!("{} is not the name of a directory", target.display()))?;
        let mut passing = name.to_owned();
        passing.push(".unfinished");
        let path = target.with_file_name(passing);
        if let Some(parent) = target.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).with_context(|| at(parent))?;
        }
        remove_left(&path)?;
        create_directory(&path)?;
        Ok(UnfinishedDirectory { _held: hold(&path)?, path, finished: false })
    }

    fn finish(mut self, target: &Path) -> Result<()> {
        sync_directory(&self.path)?;
        // Renaming replaces an empty directory.
        fs::rename(&self.path, target).with_context(|| at(target))?;
        self.finished = true;
        match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => sync_directory(parent),
            _ => sync_directory(Path::new(".")),
        }
    }
}

impl Drop for UnfinishedDirectory {
    fn drop(&mut self) {
        if !self.finished {
            // There is no way to report it; the name tells what the rest is.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes the rest of a killed dump: no dump that is being written, and no other directory.
fn remove_left(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found.with_context(|| at(path))?,
    };
    let is_left = holds_a_dump(path).with_context(|| at(path))?;
    ensure!(is_left, "{} is not an interrupted dump: rename it, or choose another directory with --to", path.display());
    let _held = hold(path)?;
    fs::remove_dir_all(path).with_context(|| format!("cannot remove {}", path.display()))
}

/// Returns whether a directory contains nothing but the files of a dump.
fn holds_a_dump(path: &Path) -> std::io::Result<bool> {
    let is_directory = |path: &Path| path.symlink_metadata().map(|metadata| metadata.is_dir());
    if !is_directory(path)? {
        return Ok(false);
    }
    for database in fs::read_dir(path)? {
        let database = database?.path();
        if !is_directory(&database)? {
            return Ok(false);
        }
        for file in fs::read_dir(database)? {
            let file = file?.path();
            let is_ours = file.extension().is_some_and(|ending| ending == "bson" || ending == "json");
            if !is_ours || is_directory(&file)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Locks a directory for this process.
fn hold(path: &Path) -> Result<File> {
    let directory = File::open(path).with_context(|| at(path))?;
    match directory.try_lock() {
        Ok(()) => Ok(directory),
        Err(TryLockError::WouldBlock) => anyhow::bail!("another dump is being written to {}", path.display()),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| at(path)),
    }
}

/// Creates a directory for its owner alone, because it holds documents.
fn create_directory(path: &Path) -> Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path).with_context(|| at(path))
}

/// Syncs the names in a directory.
fn sync_directory(path: &Path) -> Result<()> {
    File::open(path).and_then(|directory| directory.sync_all()).with_context(|| at(path))
}

fn write_file(path: &Path, content: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    let mut file = File::create_new(path).with_context(|| at(path))?;
    content(&mut file)?;
    file.sync_all().with_context(|| at(path))
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn at(path: &Path) -> String {
    format!("cannot write {}", path.display())
}
