//! The links of an application as they are recorded beside the main documents. A process that carries changes for the
//! application reads them there, so that no process has to repeat them.

use bson::{Bson, Document, doc};
use handfast_store::Namespace;

use super::link::Source;
use super::{Link, OnDelete, SyncFields};
use crate::settings::{read_namespace, written_namespace};
use crate::value::{array, string};

/// The recorded settings of a sync flag: its links, and the fields of its main documents.
#[derive(Clone, Debug)]
pub struct Declared {
    /// All links.
    pub links: Vec<DeclaredLink>,
    /// The number of tokens that each main document keeps; `None` if a build that recorded the links alone has written
    /// the record.
    pub tokens_max: Option<u32>,
    /// The field names of main documents; `None` if a build that recorded the links alone has written the record.
    pub fields: Option<SyncFields>,
    /// The collection of the record.
    pub(super) record: Namespace,
}

/// A link as an application has declared it.
#[derive(Clone, Debug)]
pub struct DeclaredLink {
    link: Link,
    functions: Vec<String>,
}

impl DeclaredLink {
    /// Returns the link without the fields that only the application can compute.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Returns the fields of copies that a function of the application computes ([`Link::computed`]). No other program
    /// can carry them.
    pub fn functions(&self) -> &[String] {
        &self.functions
    }

    /// Returns whether the link covers the same copies: those in the same collection that name their main document in
    /// the same field.
    pub fn is_of(&self, target: &Namespace, foreign_key: &str) -> bool {
        self.link.target == *target && self.link.foreign_key == foreign_key
    }

    /// Compares a link that only reads copies with this one, and describes the first difference; `None` if all of its
    /// fields are declared in the same way. The link may have fewer fields, and may compute those of a function in its
    /// own way.
    pub fn contradicts(&self, link: &Link) -> Option<String> {
        if let Some(differs) = self.differs_in_place(link) {
            return Some(differs);
        }
        link.copied.iter().find_map(|(copy, source)| {
            let declared = self.link.copied.iter().find(|(declared, _)| declared == copy);
            match declared {
                Some((_, declared)) if said_of(declared) == said_of(source) => None,
                Some((_, declared)) => {
                    Some(format!("{copy} is declared as {}, and said to be {}", said_of(declared), said_of(source)))
                }
                None if self.functions.contains(copy) => None,
                None => Some(format!("no copy {copy} is declared, but {}", self.copies().join(", "))),
            }
        })
    }

    /// Returns the paths of all fields of a copy that follow from its main document, including those of functions.
    pub fn copies(&self) -> Vec<String> {
        self.link.copied_fields().map(str::to_owned).chain(self.functions.iter().cloned()).collect()
    }

    /// Describes how two links differ in the collection, the key or the version of the copies.
    fn differs_in_place(&self, link: &Link) -> Option<String> {
        if !self.is_of(&link.target, &link.foreign_key) {
            return Some("no such link is declared".to_owned());
        }
        let names = [("version", &self.link.version, &link.version), ("syncing", &self.link.syncing, &link.syncing)];
        let other = names.into_iter().find(|(_, declared, said)| declared != said);
        other.map(|(name, declared, said)| format!("{name} is declared as {declared:?}, and said to be {said:?}"))
    }

    /// Describes how a link that is to replace this one differs; `None` if it may replace it.
    pub fn differs_from(&self, link: &Link) -> Option<String> {
        if let Some(differs) = self.differs_in_place(link) {
            return Some(differs);
        }
        if self.link.on_delete != link.on_delete {
            return Some(format!("onDelete is declared as {:?}", self.link.on_delete));
        }
        // A program may compute the fields of a function in its own way.
        let is_function = |copy: &str| self.functions.iter().any(|function| function == copy);
        if let Some(missing) = self.functions.iter().find(|path| !link.copied.iter().any(|(copy, _)| copy == *path)) {
            return Some(format!("{missing} is computed by a function of the application"));
        }
        let fields = |link: &Link| -> Vec<_> {
            let known = link.copied.iter().filter(|(copy, _)| !is_function(copy));
            let mut known: Vec<_> = known.map(|(copy, source)| (copy.clone(), said_of(source))).collect();
            known.sort_by(|(one, _), (other, _)| one.cmp(other));
            known
        };
        let (declared, said) = (fields(&self.link), fields(link));
        let names = |fields: &[(String, Document)]| {
            fields.iter().map(|(copy, of)| format!("{copy} {of}")).collect::<Vec<_>>().join(", ")
        };
        (declared != said).then(|| format!("what is copied is declared as {}", names(&declared)))
    }
}

/// Returns a link as it is recorded. The order of the copied fields has no meaning.
pub(super) fn written_link(link: &Link, mains: &Namespace) -> Document {
    let copied = |(copy, source): &(String, Source)| {
        let mut copied = doc! { "copy": copy };
        copied.extend(said_of(source));
        copied
    };
    let mut all: Vec<_> = link.copied.iter().collect();
    all.sort_by_key(|(copy, _)| copy);
    let mut written = written_namespace(&link.target, mains);
    written.extend(doc! {
        "key": &link.foreign_key,
        "version": &link.version,
        "syncing": &link.syncing,
        "copied": all.into_iter().map(copied).collect::<Vec<_>>(),
        "onDelete": link.on_delete.name(),
    });
    if let OnDelete::Set(values) = &link.on_delete {
        let mut values: Vec<_> = values.iter().collect();
        values.sort_by_key(|(copy, _)| *copy);
        let values = values.into_iter().map(|(copy, value)| doc! { "copy": copy, "value": value.clone() });
        written.insert("values", values.collect::<Vec<_>>());
    }
    written
}

/// Expressions are stored as text, because not every store allows field names with a `$`.
fn said_of(source: &Source) -> Document {
    match source {
        Source::Field(path) => doc! { "field": path },
        Source::Expression(expression, _) => {
            doc! { "expression": expression.clone().into_canonical_extjson().to_string() }
        }
        Source::Function(_) => doc! { "function": true },
    }
}

/// Reads a link that [`written_link`] has written.
pub(super) fn read_link(
    link: &Bson,
    mains: &Namespace,
) -> std::result::Result<DeclaredLink, Box<dyn std::error::Error>> {
    let link = link.as_document().ok_or("a link is no document")?;
    let target = read_namespace(link, mains)?;
    let mut read =
        Link::new(target, string(link, "key")?).with_fields(string(link, "version")?, string(link, "syncing")?);
    let mut functions = Vec::new();
    for copied in documents(link, "copied")? {
        let copy = string(copied, "copy")?;
        read = match (copied.get_str("field"), copied.get_str("expression")) {
            (Ok(field), _) => read.field(field, copy),
            (_, Ok(expression)) => {
                let expression: serde_json::Value = serde_json::from_str(expression)?;
                read.expression(copy, Bson::try_from(expression)?)?
            }
            _ => {
                functions.push(copy.to_owned());
                read
            }
        };
    }
    let on_delete = match string(link, "onDelete")? {
        "unset" => OnDelete::Unset,
        "remove" => OnDelete::Remove,
        "keep" => OnDelete::Keep,
        "set" => {
            let mut values = Document::new();
            for value in documents(link, "values")? {
                values.insert(string(value, "copy")?, value.get("value").ok_or("a value is missing")?.clone());
            }
            OnDelete::Set(values)
        }
        other => return Err(format!("{other} is not an action on copies after a delete").into()),
    };
    Ok(DeclaredLink { link: read.on_delete(on_delete), functions })
}

fn documents<'a>(
    of: &'a Document,
    name: &str,
) -> std::result::Result<impl Iterator<Item = &'a Document>, Box<dyn std::error::Error>> {
    Ok(array(of, name)?.iter().filter_map(Bson::as_document))
}
