//! Names of fields: each pattern has its own, and every one can be set.

use bson::Document;

use crate::{Error, Result};

/// Names of fields with a default each.
pub trait FieldNames: Default {
    /// The names by default.
    const DEFAULTS: &'static [&'static str];

    /// Gives the field that has this name by default another one; says whether there is such a field.
    fn rename(&mut self, default: &str, name: &str) -> bool;

    /// Each name by its default: `{ts: "ts", type: "kind"}`.
    fn to_document(&self) -> Document;

    /// What [`FieldNames::to_document`] was made from; a name that is not there is the default.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is no text, or of a field that is not known.
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

/// Defines a struct of names with their defaults.
macro_rules! field_names {
    ($(#[$about:meta])* $visible:vis struct $Names:ident { $($(#[$of:meta])* $field:ident: $default:literal,)+ }) => {
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
    use super::FieldNames;

    field_names! {
        /// Two names.
        struct Names {
            /// The first.
            ts: "ts",
            /// The second, whose name is no word of Rust.
            kind: "type",
        }
    }

    #[test]
    fn a_field_is_renamed_by_its_default() {
        let mut names = Names::default();
        assert!(names.rename("type", "kind"));
        assert!(!names.rename("kind", "again"), "only defaults are known");
        assert_eq!((names.ts.as_str(), names.kind.as_str()), ("ts", "kind"));
        assert_eq!(Names::DEFAULTS, ["ts", "type"]);
    }

    #[test]
    fn names_can_be_read_back() {
        let mut names = Names::default();
        names.rename("type", "kind");
        let document = names.to_document();
        assert_eq!(document, bson::doc! { "ts": "ts", "type": "kind" });
        let read = |document: &bson::Document| Names::from_document(document).map(|names| (names.ts, names.kind));
        assert_eq!(read(&document).ok(), Some(("ts".to_owned(), "kind".to_owned())));
        assert_eq!(read(&bson::doc! { "type": "k" }).ok(), Some(("ts".to_owned(), "k".to_owned())));
        for wrong in [bson::doc! { "kind": "type" }, bson::doc! { "type": 1 }] {
            assert!(read(&wrong).is_err(), "{wrong}");
        }
    }
}
