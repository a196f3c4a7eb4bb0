//! Field names: each pattern has a set of them, and every name can be changed.

use std::collections::BTreeMap;

use bson::Document;

use crate::{Error, Result};

/// A set of field names, each with a default.
pub trait FieldNames: Default {
    /// The default names.
    const DEFAULTS: &'static [&'static str];

    /// The kinds of documents that have the field, for each default. Fields of one kind of document must have
    /// different names.
    const DOCUMENTS: &'static [&'static [&'static str]];

    /// Checks that each name is a valid field name, and that no two fields of a document have the same name.
    ///
    /// # Errors
    /// [`Error::Invalid`], which names the field by its default.
    fn check(&self) -> Result<()> {
        let names = self.to_document();
        let mut taken = BTreeMap::new();
        for (default, documents) in Self::DEFAULTS.iter().zip(Self::DOCUMENTS) {
            let name = names.get_str(default).unwrap_or(default);
            if name.contains('.') || !is_path(name) {
                return Err(Error::invalid(format!("the field {default} cannot be named {name:?}")));
            }
            for document in *documents {
                if let Some(other) = taken.insert((document, name.to_owned()), default) {
                    return Err(Error::invalid(format!(
                        "the fields {other} and {default} of {document} cannot both be named {name:?}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Replaces the name of the field with this default name. Returns whether there is such a field.
    fn rename(&mut self, default: &str, name: &str) -> bool;

    /// Returns the names as a document, each under its default name: `{ts: "ts", type: "kind"}`.
    fn to_document(&self) -> Document;

    /// Reads the names from a document that [`FieldNames::to_document`] has made; a missing name is the default.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is no string, and for an unknown field.
    fn from_document(names: &Document) -> Result<Self> {
        let mut fields = Self::default();
        for (default, name) in names {
            if !name.as_str().is_some_and(|name| fields.rename(default, name)) {
                return Err(Error::invalid(format!("there is no field {default} that could be named {name}")));
            }
        }
        Ok(fields)
    }
}

/// Returns whether a path can be one of fields of users' documents, which share them with the store's own fields.
pub(crate) fn is_path(path: &str) -> bool {
    let is_name = |name: &str| !name.is_empty() && !name.starts_with('$') && !name.contains('\0');
    path.split('.').all(is_name) && !matches!(path.split('.').next(), Some("_id" | "_hf"))
}

/// Defines a struct of field names with their defaults and the kinds of documents that have each field: `ts: "ts" in
/// "an entry"`.
macro_rules! field_names {
    ($(#[$about:meta])* $visible:vis struct $Names:ident {
        $($(#[$of:meta])* $field:ident: $default:literal in $($document:literal)|+,)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug)]
        $visible struct $Names {
            $($(#[$of])* $visible $field: String,)+
        }

        impl Default for $Names {
            fn default() -> Self {
                $Names { $($field: $default.to_owned(),)+ }
            }
        }

        impl $crate::FieldNames for $Names {
            const DEFAULTS: &'static [&'static str] = &[$($default),+];
            const DOCUMENTS: &'static [&'static [&'static str]] = &[$(&[$($document),+]),+];

            fn rename(&mut self, default: &str, name: &str) -> bool {
                let field = match default {
                    $($default => &mut self.$field,)+
                    _ => return false,
                };
                name.clone_into(field);
                true
            }

            fn to_document(&self) -> bson::Document {
                bson::doc! { $($default: &self.$field),+ }
            }
        }
    };
}

pub(crate) use field_names;

#[cfg(test)]
mod tests {
    use super::{FieldNames, is_path};

    field_names! {
        /// A struct with fields of several kinds of documents.
        struct Names {
            /// A name that one kind of document has.
            ts: "ts" in "an entry",
            /// A name that two kinds of documents have, whose default is a keyword of Rust.
            kind: "type" in "an entry" | "a change",
            /// Another name of the second kind of document.
            value: "value" in "a change",
        }
    }

    #[test]
    fn two_fields_of_a_document_have_two_names() {
        let named = |renamed: &[(&str, &str)]| {
            let mut names = Names::default();
            renamed.iter().for_each(|(default, name)| assert!(names.rename(default, name)));
            names.check().map_err(|error| error.to_string())
        };
        assert_eq!(named(&[]), Ok(()));
        assert_eq!(named(&[("ts", "type"), ("type", "ts")]), Ok(()), "exchanged");
        assert_eq!(named(&[("ts", "value")]), Ok(()), "they are in two documents");
        for (renamed, said) in [
            (&[("ts", "type")], "the fields ts and type of an entry cannot both be named \"type\""),
            (&[("value", "type")], "the fields type and value of a change cannot both be named \"type\""),
            (&[("ts", "")], "the field ts cannot be named \"\""),
            (&[("ts", "a.b")], "\"a.b\""),
            (&[("ts", "$a")], "\"$a\""),
            (&[("ts", "_id")], "\"_id\""),
            (&[("ts", "_hf")], "\"_hf\""),
        ] {
            let error = named(renamed).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn paths_of_fields() {
        assert!(is_path("money.balance") && !is_path("money..balance") && !is_path("_id.a") && !is_path("a.$b"));
    }

    #[test]
    fn a_field_is_renamed_by_its_default() {
        let mut names = Names::default();
        assert!(names.rename("type", "kind"));
        assert!(!names.rename("kind", "again"), "only defaults are known");
        assert_eq!((names.ts.as_str(), names.kind.as_str()), ("ts", "kind"));
        assert_eq!(Names::DEFAULTS, ["ts", "type", "value"]);
    }

    #[test]
    fn names_can_be_read_back() {
        let mut names = Names::default();
        names.rename("type", "kind");
        let document = names.to_document();
        assert_eq!(document, bson::doc! { "ts": "ts", "type": "kind", "value": "value" });
        let read = |document: &bson::Document| Names::from_document(document).map(|names| (names.ts, names.kind));
        assert_eq!(read(&document).ok(), Some(("ts".to_owned(), "kind".to_owned())));
        assert_eq!(read(&bson::doc! { "type": "k" }).ok(), Some(("ts".to_owned(), "k".to_owned())));
        for wrong in [bson::doc! { "kind": "type" }, bson::doc! { "type": 1 }] {
            assert!(read(&wrong).is_err(), "{wrong}");
        }
    }
}
