//! Names of files, and the content of metadata files.

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bson::{Bson, Document, RawDocumentBuf, doc};
use handfast_mql::depth::{self, Limits};
use handfast_store::validation::Validator;
use handfast_store::{CollectionInfo, CollectionOptions, IndexInfo, IndexSpec};
use serde_json::Value;

use super::arguments::DumpFormat;

/// Longest encoded name, in bytes, that is used as it is. File names have 255 bytes; this leaves room for the longest
/// ending and for a number.
const NAME_BYTES_MAX: usize = 200;

pub(in crate::command) const METADATA: &str = ".metadata.json";

/// The field of metadata with all of them as BSON, in base64, where Extended JSON is ambiguous.
const EXACT: &str = "bson";

/// Limits on metadata: definitions of a view and of indexes are within it, each with the limits of a document.
const LIMITS: Limits = Limits { nesting_max: depth::NESTING_MAX + 8, bytes_max: 8 * depth::DOCUMENT_BYTES_MAX };

/// The end of a collection's name with which the file of its documents in JSON would have the name of a metadata file.
const METADATA_IN_NAME: &str = ".metadata";

/// Returns the file name, without ending, of a database or collection: percent-encoded where a file system might object. A long name is
/// cut, and gets `%24` (a dollar sign, which no name holds) and a number that keeps it apart.
pub(in crate::command) fn file_name(name: &str, number: usize) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    if encoded.len() > NAME_BYTES_MAX {
        encoded.truncate(NAME_BYTES_MAX);
        // Cut within an escape: take all of it away.
        if let Some(start) = encoded.rfind('%').filter(|start| start + 3 > encoded.len()) {
            encoded.truncate(start);
        }
        encoded.push_str(&format!("%24{number}"));
    }
    encoded
}

/// Returns the file name of a collection, without ending. In JSON, the last dot is encoded of a name whose documents would look like the
/// metadata of another collection (`orders.metadata`).
pub(in crate::command) fn collection_file_name(name: &str, number: usize, format: DumpFormat) -> String {
    let file = file_name(name, number);
    match file.strip_suffix(METADATA_IN_NAME) {
        Some(start) if format == DumpFormat::Json => format!("{start}%2E{}", &METADATA_IN_NAME[1..]),
        _ => file,
    }
}

/// Returns the name that a file name stands for.
pub(in crate::command) fn decode_name(file: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(file.len());
    let mut rest = file;
    while let Some((before, after)) = rest.split_once('%') {
        let digits = after.get(..2).context("a percent sign needs two hexadecimal digits")?;
        bytes.extend_from_slice(before.as_bytes());
        bytes.push(u8::from_str_radix(digits, 16)?);
        rest = &after[2..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(String::from_utf8(bytes)?)
}

/// The metadata of a collection.
#[derive(Debug, PartialEq)]
pub(in crate::command) struct Metadata {
    /// The name of the collection, if the file contains it.
    pub(in crate::command) collection: Option<String>,
    /// The indexes without `_id_`.
    pub(in crate::command) indexes: Vec<IndexSpec>,
    pub(in crate::command) options: CollectionOptions,
}

impl Metadata {
    /// Returns the text of a metadata file.
    pub(in crate::command) fn write(collection: &CollectionInfo, indexes: &[IndexInfo]) -> Result<String> {
        let indexes: Vec<Bson> = indexes
            .iter()
            .map(|index| Ok(Bson::Document(Document::try_from(index.spec.to_document())?)))
            .collect::<Result<_>>()?;
        let uuid: String = collection.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let kind = if collection.options.view.is_some() { "view" } else { "collection" };
        let mut metadata = doc! {
            "collectionName": &collection.name, "type": kind,
            "options": Document::try_from(collection.options.to_document())?, "uuid": uuid, "indexes": indexes,
        };
        let text =
            |metadata: &Document| serde_json::to_string(&Bson::Document(metadata.clone()).into_canonical_extjson());
        let written = text(&metadata)?;
        let is_exact = serde_json::from_str(&written)
            .is_ok_and(|value: Value| Bson::try_from(value).is_ok_and(|read| read == Bson::Document(metadata.clone())));
        if is_exact {
            return Ok(written);
        }
        // A definition may have what looks like Extended JSON: `{$literal: {$date: 5}}`.
        let exact = BASE64.encode(RawDocumentBuf::try_from(&metadata)?.as_bytes());
        metadata.insert(EXACT, exact);
        Ok(text(&metadata)?)
    }

    /// Reads a metadata file.
    pub(in crate::command) fn read(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text)?;
        let metadata = match value.get(EXACT).and_then(Value::as_str) {
            Some(exact) => {
                let bytes = BASE64.decode(exact).with_context(|| format!("{EXACT} is not in base64"))?;
                depth::check(&bytes, LIMITS).with_context(|| format!("{EXACT} is no document"))?;
                Document::try_from(RawDocumentBuf::from_bytes(bytes)?)?
            }
            None => match Bson::try_from(value)? {
                Bson::Document(metadata) => metadata,
                _ => anyhow::bail!("an object is expected"),
            },
        };
        let kind = metadata.get_str("type").unwrap_or("collection");
        ensure!(matches!(kind, "collection" | "view"), "a {kind} cannot be restored, only a collection or a view");
        let options = metadata.get_document("options").cloned().unwrap_or_default();
        let options = CollectionOptions::from_document(&RawDocumentBuf::try_from(&options)?)?;
        ensure!((kind == "view") == options.view.is_some(), "the options are not those of a {kind}");
        Validator::compile(&options)?;
        let indexes = metadata.get_array("indexes").cloned().unwrap_or_default();
        let indexes = indexes.iter().map(index).collect::<Result<Vec<_>>>()?;
        Ok(Metadata {
            collection: metadata.get_str("collectionName").ok().map(str::to_owned),
            indexes: indexes.into_iter().filter(|spec| !spec.is_id()).collect(),
            options,
        })
    }
}

fn index(value: &Bson) -> Result<IndexSpec> {
    let document: &Document = value.as_document().context("an index is an object")?;
    let raw = RawDocumentBuf::try_from(document)?;
    Ok(IndexSpec::from_document(&raw)?)
}
