//! Names of fields: each pattern has its own, and every one can be set.

/// Names of fields with a default each.
pub trait FieldNames: Default {
    /// The names by default.
    const DEFAULTS: &'static [&'static str];

    /// Gives the field that has this name by default another one; says whether there is such a field.
    fn rename(&mut self, default: &str, name: &str) -> bool;
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
}
