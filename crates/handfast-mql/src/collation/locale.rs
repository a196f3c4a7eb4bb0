//! The locales of collations: `en`, `de_AT`, `sr_Latn`, `de@collation=phonebook`.

use icu_locale_core::Locale;

use super::bad_value;
use crate::{Result, text};
use bson::RawDocument;

/// The languages with rules of their own or the root's, as the manual of MongoDB lists them.
const LANGUAGES: &[&str] = &[
    "af", "am", "ar", "as", "az", "be", "bg", "bn", "bo", "bs", "ca", "chr", "cs", "cy", "da", "de", "dsb", "dz", "ee",
    "el", "en", "eo", "es", "et", "fa", "fi", "fil", "fo", "fr", "ga", "gl", "gu", "ha", "haw", "he", "hi", "hr",
    "hsb", "hu", "hy", "id", "ig", "is", "it", "ja", "ka", "kk", "kl", "km", "kn", "ko", "kok", "ky", "lb", "lkt",
    "ln", "lo", "lt", "lv", "mk", "ml", "mn", "mr", "ms", "mt", "my", "nb", "ne", "nl", "nn", "om", "or", "pa", "pl",
    "ps", "pt", "ro", "ru", "se", "si", "sk", "sl", "smn", "sq", "sr", "sv", "sw", "ta", "te", "th", "to", "tr", "ug",
    "uk", "ur", "vi", "wae", "yi", "yo", "zh", "zu",
];

/// The kinds of order that a locale may name after `@collation=`, and their names in Unicode locales.
const KINDS: &[(&str, &str)] = &[
    ("big5han", "big5han"),
    ("compat", "compat"),
    ("dictionary", "dict"),
    ("emoji", "emoji"),
    ("eor", "eor"),
    ("gb2312han", "gb2312"),
    ("phonebook", "phonebk"),
    ("phonetic", "phonetic"),
    ("pinyin", "pinyin"),
    ("reformed", "reformed"),
    ("search", "search"),
    ("searchjl", "searchjl"),
    ("standard", "standard"),
    ("stroke", "stroke"),
    ("traditional", "trad"),
    ("unihan", "unihan"),
    ("zhuyin", "zhuyin"),
];

/// Returns the Unicode locale of a name, without the settings of a collation.
///
/// # Errors
/// `BadValue` (2) for a name of none.
pub(super) fn unicode(name: &str, collation: &RawDocument) -> Result<String> {
    parts(name)
        .filter(|unicode| Locale::try_from_str(unicode).is_ok())
        .ok_or_else(|| bad_value(format!("Field 'locale' is invalid in: {}", text::document(collation))))
}

fn parts(name: &str) -> Option<String> {
    let (base, kind) = match name.split_once('@') {
        Some((base, kind)) => (base, Some(kind.strip_prefix("collation=")?)),
        None => (name, None),
    };
    let mut parts = base.split('_');
    let language = parts.next().filter(|language| LANGUAGES.binary_search(language).is_ok())?;
    let mut unicode = language.to_owned();
    let (mut has_script, mut has_region) = (false, false);
    for part in parts {
        let is_script = part.len() == 4
            && part.starts_with(|first: char| first.is_ascii_uppercase())
            && part.bytes().skip(1).all(|byte| byte.is_ascii_lowercase());
        let is_region = (part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_uppercase()))
            || (part.len() == 3 && part.bytes().all(|byte| byte.is_ascii_digit()));
        match part {
            "POSIX" if base == "en_US_POSIX" => {
                unicode.push_str("-u-va-posix");
                return kind.is_none().then_some(unicode);
            }
            _ if is_script && !has_script && !has_region => has_script = true,
            _ if is_region && !has_region => has_region = true,
            _ => return None,
        }
        unicode.push('-');
        unicode.push_str(part);
    }
    if let Some(kind) = kind {
        let (_, kind) = KINDS.iter().find(|(name, _)| *name == kind)?;
        unicode.push_str("-u-co-");
        unicode.push_str(kind);
    }
    Some(unicode)
}

/// Returns whether the accents of a locale are compared from the end of a string.
pub(super) fn is_backwards(name: &str) -> bool {
    name.split('@').next() == Some("fr_CA")
}
