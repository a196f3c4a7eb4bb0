//! The fields of a collation document, and the collator that they ask for.

use bson::raw::cstr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use icu_collator::CollatorBorrowed;
use icu_collator::options::{AlternateHandling, CaseLevel, CollatorOptions, MaxVariable, Strength};
use icu_collator::preferences::{CollationCaseFirst, CollationNumericOrdering};
use icu_locale_core::Locale;

use super::{bad_value, locale};
use crate::{Code, Error, Number, Result, bson_type, text};

/// The version of ICU that MongoDB names in all of its collations: its tools compare it.
const VERSION: &str = "57.1";

const MISSING_FIELD: Code = Code(40_414);
const UNKNOWN_FIELD: Code = Code(40_415);
const OUT_OF_RANGE: Code = Code(51_024);
const INCOMPATIBLE_VERSION: Code = Code(161);

/// The fields as they were given.
pub(super) struct Fields<'d> {
    pub(super) locale: &'d str,
    strength: Option<i64>,
    case_level: Option<bool>,
    case_first: Option<&'d str>,
    numeric: Option<bool>,
    alternate: Option<&'d str>,
    max_variable: Option<&'d str>,
    backwards: Option<bool>,
    normalization: Option<bool>,
}

impl<'d> Fields<'d> {
    pub(super) fn read(document: &'d RawDocument) -> Result<Self> {
        let mut locale = None;
        let mut fields = Fields {
            locale: "",
            strength: None,
            case_level: None,
            case_first: None,
            numeric: None,
            alternate: None,
            max_variable: None,
            backwards: None,
            normalization: None,
        };
        for field in document {
            let (name, value) = field?;
            let name = name.as_str();
            match name {
                "locale" => locale = Some(string(name, value)?),
                "strength" => fields.strength = Some(strength(value)?),
                "caseLevel" => fields.case_level = Some(boolean(name, value)?),
                "caseFirst" => fields.case_first = Some(one_of(name, value, &["upper", "lower", "off"])?),
                "numericOrdering" => fields.numeric = Some(boolean(name, value)?),
                "alternate" => fields.alternate = Some(one_of(name, value, &["non-ignorable", "shifted"])?),
                "maxVariable" => fields.max_variable = Some(one_of(name, value, &["punct", "space"])?),
                "backwards" => fields.backwards = Some(boolean(name, value)?),
                "normalization" => fields.normalization = Some(boolean(name, value)?),
                "version" => {
                    let version = string(name, value)?;
                    if version != VERSION {
                        return Err(Error::new(
                            INCOMPATIBLE_VERSION,
                            format!(
                                "Requested collation version {version}, but the only available collator version is {VERSION}"
                            ),
                        ));
                    }
                }
                other => {
                    let message = format!("BSON field 'collation.{other}' is an unknown field.");
                    return Err(Error::new(UNKNOWN_FIELD, message));
                }
            }
        }
        let missing = "BSON field 'collation.locale' is missing but a required field";
        fields.locale = locale.ok_or_else(|| Error::new(MISSING_FIELD, missing))?;
        if fields.locale == "simple" && document.iter().count() > 1 {
            return Err(bad_value(format!(
                "locale 'simple' must not be given with other fields: {}",
                text::document(document)
            )));
        }
        Ok(fields)
    }

    /// Returns the collator, and the document with all fields.
    pub(super) fn resolve(&self, given: &RawDocument) -> Result<(CollatorBorrowed<'static>, RawDocumentBuf)> {
        let mut unicode = locale::unicode(self.locale, given)?;
        let settings: String = [
            self.case_first.map(|first| format!("-kf-{}", if first == "off" { "false" } else { first })),
            self.numeric.map(|numeric| format!("-kn-{numeric}")),
        ]
        .into_iter()
        .flatten()
        .collect();
        if !settings.is_empty() {
            if !unicode.contains("-u-") {
                unicode.push_str("-u");
            }
            unicode.push_str(&settings);
        }
        let mut options = CollatorOptions::default();
        options.strength = self.strength.map(|strength| match strength {
            1 => Strength::Primary,
            2 => Strength::Secondary,
            4 => Strength::Quaternary,
            5 => Strength::Identical,
            _ => Strength::Tertiary,
        });
        options.case_level = self.case_level.map(|on| if on { CaseLevel::On } else { CaseLevel::Off });
        options.alternate_handling = self.alternate.map(|alternate| match alternate {
            "shifted" => AlternateHandling::Shifted,
            _ => AlternateHandling::NonIgnorable,
        });
        options.max_variable = self.max_variable.map(|most| match most {
            "space" => MaxVariable::Space,
            _ => MaxVariable::Punctuation,
        });
        let unavailable = || bad_value(format!("there are no rules for the collation {}", text::document(given)));
        let locale = Locale::try_from_str(&unicode).map_err(|_| unavailable())?;
        let collator = CollatorBorrowed::try_new((&locale).into(), options).map_err(|_| unavailable())?;
        let document = self.full(&collator)?;
        Ok((collator, document))
    }

    /// Returns the document with the values that the locale gives to the fields that were not given.
    fn full(&self, collator: &CollatorBorrowed<'_>) -> Result<RawDocumentBuf> {
        let resolved = collator.resolved_options();
        let strength = match resolved.strength {
            Strength::Primary => 1,
            Strength::Secondary => 2,
            Strength::Quaternary => 4,
            Strength::Identical => 5,
            _ => 3,
        };
        let case_level = resolved.case_level == CaseLevel::On;
        if matches!(self.case_first, Some("upper" | "lower")) && !case_level && strength < 3 {
            return Err(bad_value(
                "'caseFirst' is invalid unless 'caseLevel' is on or 'strength' is greater than 2".to_owned(),
            ));
        }
        if self.backwards == Some(true) && strength == 1 {
            return Err(bad_value("'backwards' is invalid with 'strength' of 1".to_owned()));
        }
        let backwards = locale::is_backwards(self.locale);
        if self.backwards.is_some_and(|wanted| wanted != backwards) {
            return Err(Error::new(
                Code::NotImplemented,
                "the field 'collation.backwards' is not supported, except with the value that the locale has: true for fr_CA, \
                 false for all others",
            ));
        }
        let case_first = match resolved.case_first {
            CollationCaseFirst::Upper => "upper",
            CollationCaseFirst::Lower => "lower",
            _ => "off",
        };
        let alternate =
            if resolved.alternate_handling == AlternateHandling::Shifted { "shifted" } else { "non-ignorable" };
        let mut full = RawDocumentBuf::new();
        full.append(cstr!("locale"), self.locale);
        full.append(cstr!("caseLevel"), case_level);
        full.append(cstr!("caseFirst"), case_first);
        full.append(cstr!("strength"), strength);
        full.append(cstr!("numericOrdering"), resolved.numeric == CollationNumericOrdering::True);
        full.append(cstr!("alternate"), alternate);
        full.append(cstr!("maxVariable"), if resolved.max_variable == MaxVariable::Space { "space" } else { "punct" });
        full.append(cstr!("normalization"), self.normalization.unwrap_or(false));
        full.append(cstr!("backwards"), backwards);
        full.append(cstr!("version"), VERSION);
        Ok(full)
    }
}

fn wrong_type(name: &str, value: RawBsonRef<'_>, expected: &str) -> Error {
    let found = bson_type::type_name(value);
    let message = format!("BSON field 'collation.{name}' is the wrong type '{found}', expected {expected}");
    Error::new(Code::TypeMismatch, message)
}

fn string<'d>(name: &str, value: RawBsonRef<'d>) -> Result<&'d str> {
    value.as_str().ok_or_else(|| wrong_type(name, value, "type 'string'"))
}

/// Reads a switch; MongoDB takes a number for one.
fn boolean(name: &str, value: RawBsonRef<'_>) -> Result<bool> {
    match value {
        RawBsonRef::Boolean(value) => Ok(value),
        value => Number::of(value)
            .map(|number| !number.is_zero())
            .ok_or_else(|| wrong_type(name, value, "types '[bool, long, int, decimal, double]'")),
    }
}

fn strength(value: RawBsonRef<'_>) -> Result<i64> {
    let number =
        Number::of(value).ok_or_else(|| wrong_type("strength", value, "types '[long, int, decimal, double]'"))?;
    let strength = number.to_i64_truncated().unwrap_or(i64::MAX);
    let (relation, bound) = match strength {
        1..=5 => return Ok(strength),
        ..1 => (">=", 1),
        _ => ("<=", 5),
    };
    let message = format!("BSON field 'strength' value must be {relation} {bound}, actual value '{strength}'");
    Err(Error::new(OUT_OF_RANGE, message))
}

fn one_of<'d>(name: &str, value: RawBsonRef<'d>, values: &[&str]) -> Result<&'d str> {
    let found = string(name, value)?;
    if values.contains(&found) {
        return Ok(found);
    }
    Err(bad_value(format!("Enumeration value '{found}' for field 'collation.{name}' is not a valid value.")))
}
