//! The accepted index definitions and their form in BSON.
//!
//! The document form is the one of `createIndexes` and `listIndexes`; backends also keep it on disk.

use bson::raw::cstr;
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::{Code, Collation};

use crate::{Error, IndexSpec, Result, notation};

/// MongoDB's limit on the fields of a compound index.
pub const INDEX_FIELDS_MAX: usize = 32;
/// MongoDB's limit on the indexes of a collection, including `_id_`.
pub const INDEXES_MAX: usize = 64;
/// MongoDB's limit on the lifetime of a TTL index, in seconds.
pub const EXPIRE_AFTER_SECONDS_MAX: i64 = i32::MAX as i64;
/// The name of the index that every collection has.
pub const ID_INDEX_NAME: &str = "_id_";

/// Kinds of indexes that Handfast does not support.
const KINDS_REFUSED: [&str; 6] = ["text", "2d", "2dsphere", "2dsphere_bucket", "geoHaystack", "columnstore"];
/// The kind of a field whose values MongoDB hashes. Here its index is in the order of the values, so it serves more queries than there.
const HASHED: &str = "hashed";
/// MongoDB's code for a unique index with a hashed field.
const HASHED_AND_UNIQUE: Code = Code(16_764);
/// MongoDB's code for two hashed fields of an index.
const TWO_HASHED: Code = Code(31_303);
/// Operators that a partial filter may contain (MongoDB's documentation, "Partial Indexes").
const PARTIAL_FILTER_OPERATORS: [&str; 12] =
    ["$and", "$or", "$in", "$eq", "$exists", "$gt", "$gte", "$lt", "$lte", "$type", "$comment", "$options"];

impl IndexSpec {
    /// Returns the definition of the index `{_id: 1}` that every collection has.
    pub fn id() -> Self {
        IndexSpec { name: ID_INDEX_NAME.to_owned(), ..IndexSpec::new(bson::rawdoc! { "_id": 1 }) }
    }

    /// Returns whether this is the index on `_id` alone.
    pub fn is_id(&self) -> bool {
        is_id_key(&self.key)
    }

    /// Parses a definition in the form of `createIndexes`. [`IndexSpec::validate`] checks whether the index is possible.
    ///
    /// # Errors
    /// `InvalidIndexSpecificationOption` (197) for an option that is not known, `FailedToParse` (9) for a missing
    /// `key` or `name`, `TypeMismatch` (14), `CannotCreateIndex` (67).
    pub fn from_document(document: &RawDocument) -> Result<Self> {
        let mut spec = IndexSpec::new(RawDocumentBuf::new());
        let (mut name, mut key) = (None, None);
        for element in document {
            let (option, value) = element.map_err(handfast_mql::Error::from)?;
            let option = option.as_str();
            match option {
                "key" => key = Some(as_document(option, value)?),
                "name" => {
                    let text = value.as_str().ok_or_else(|| mismatch(option, "a string", value))?;
                    name = Some(text.to_owned());
                }
                "unique" => spec.unique = as_bool(option, value)?,
                "sparse" => spec.sparse = as_bool(option, value)?,
                "hidden" => spec.hidden = as_bool(option, value)?,
                "partialFilterExpression" => spec.partial_filter = Some(as_document(option, value)?),
                "expireAfterSeconds" => spec.expire_after_seconds = Some(as_seconds(value, document)?),
                "v" => check_version(value)?,
                "collation" => spec.collation = collation(value)?,
                "background" => spec.background = Some(as_bool(option, value)?),
                // Obsolete, and without effect in MongoDB too.
                "ns" | "dropDups" => {}
                _ => return Err(unknown_option(option, document)),
            }
        }
        let missing = |field| {
            let text = format!("The '{field}' field is a required property of an index specification");
            Error::command(Code::FailedToParse, text)
        };
        spec.key = key.ok_or_else(|| missing("key"))?;
        spec.name = name.ok_or_else(|| missing("name"))?;
        Ok(spec)
    }

    /// Returns the definition in the form of `listIndexes`, which [`IndexSpec::from_document`] parses.
    pub fn to_document(&self) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("v"), 2);
        document.append(cstr!("key"), self.key.clone());
        document.append(cstr!("name"), self.name.as_str());
        for (name, set) in
            [(cstr!("unique"), self.unique), (cstr!("sparse"), self.sparse), (cstr!("hidden"), self.hidden)]
        {
            if set {
                document.append(name, true);
            }
        }
        if let Some(collation) = &self.collation {
            document.append(cstr!("collation"), collation.clone());
        }
        if let Some(background) = self.background {
            document.append(cstr!("background"), background);
        }
        if let Some(filter) = &self.partial_filter {
            document.append(cstr!("partialFilterExpression"), filter.clone());
        }
        if let Some(seconds) = self.expire_after_seconds {
            match i32::try_from(seconds) {
                Ok(seconds) => document.append(cstr!("expireAfterSeconds"), seconds),
                Err(_) => document.append(cstr!("expireAfterSeconds"), seconds),
            }
        }
        document
    }

    /// Checks that the index is possible.
    ///
    /// # Errors
    /// `CannotCreateIndex` (67), `BadValue` (2), `InvalidIndexSpecificationOption` (197) for options on `_id`, 16764 for a unique index with a
    /// hashed field, 31303 for two hashed fields.
    pub fn validate(&self) -> Result<()> {
        check_key(&self.key)?;
        self.check_name()?;
        if self.unique && hashed(&self.key).next().is_some() {
            let text = "Currently hashed indexes cannot guarantee uniqueness. Use a regular index.";
            return Err(Error::command(HASHED_AND_UNIQUE, text));
        }
        if self.is_id() {
            return self.check_id_options();
        }
        if let Some(seconds) = self.expire_after_seconds {
            check_expiry(seconds, &self.key)?;
        }
        if let Some(filter) = &self.partial_filter {
            if self.sparse {
                return Err(cannot_create("cannot mix \"partialFilterExpression\" and \"sparse\" options"));
            }
            check_partial_filter(filter)?;
        }
        Ok(())
    }

    fn check_name(&self) -> Result<()> {
        if self.name.is_empty() {
            return Err(cannot_create("index name cannot be empty"));
        }
        if self.name == "*" {
            return Err(bad_value("The index name '*' is not valid.".to_owned()));
        }
        if self.name.contains('\0') {
            return Err(cannot_create("index name cannot contain the null character"));
        }
        if self.name == ID_INDEX_NAME && !self.is_id() {
            let found = notation::document(&self.key);
            return Err(bad_value(format!(
                "The index name '_id_' is reserved for the _id index, which must have key pattern {{_id: 1}}, \
                 found key: {found}"
            )));
        }
        Ok(())
    }

    fn check_id_options(&self) -> Result<()> {
        let options = [
            ("unique", self.unique),
            ("sparse", self.sparse),
            ("hidden", self.hidden),
            ("partialFilterExpression", self.partial_filter.is_some()),
            ("expireAfterSeconds", self.expire_after_seconds.is_some()),
        ];
        for (option, given) in options {
            // The index on `_id` is unique, so `unique: true` is allowed.
            if given && option != "unique" {
                return Err(Error::command(
                    Code::InvalidIndexSpecificationOption,
                    format!("The field '{option}' is not valid for an _id index specification"),
                ));
            }
        }
        let ascending = self.key.iter().flatten().all(|(_, value)| direction(value) == Some(1));
        if !ascending {
            return Err(bad_value(format!(
                "The field 'key' for an _id index must be {{_id: 1}}, but got {}",
                notation::document(&self.key)
            )));
        }
        Ok(())
    }
}

/// Returns 1 or -1 for a value of a key pattern that is a usable number.
pub(super) fn direction(value: RawBsonRef<'_>) -> Option<i8> {
    let number = match value {
        RawBsonRef::Int32(number) => f64::from(number),
        RawBsonRef::Int64(number) => number as f64,
        RawBsonRef::Double(number) => number,
        RawBsonRef::Decimal128(number) => number.to_string().parse().ok()?,
        _ => return None,
    };
    if number > 0.0 {
        Some(1)
    } else if number < 0.0 {
        Some(-1)
    } else {
        None
    }
}

/// Returns the positions of the hashed fields of a key pattern.
pub(super) fn hashed(key: &RawDocument) -> impl Iterator<Item = usize> {
    key.iter().flatten().enumerate().filter(|(_, (_, value))| value.as_str() == Some(HASHED)).map(|(field, _)| field)
}

/// Returns whether two values of key patterns mean the same order or kind.
pub(super) fn same_direction(one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> bool {
    direction(one) == direction(other) && one.as_str() == other.as_str()
}

fn is_id_key(key: &RawDocument) -> bool {
    let mut elements = key.iter().flatten();
    let only = elements.next().is_some_and(|(name, value)| name.as_str() == "_id" && direction(value).is_some());
    only && elements.next().is_none()
}

fn check_key(key: &RawDocument) -> Result<()> {
    let mut names = Vec::new();
    for element in key {
        let (name, value) = element.map_err(handfast_mql::Error::from)?;
        let name = name.as_str();
        check_direction(name, value)?;
        check_field_name(name)?;
        if names.contains(&name) {
            return Err(bad_value(format!("The field '{name}' appears multiple times in the index key pattern")));
        }
        names.push(name);
    }
    let fields_hashed = hashed(key).count();
    if fields_hashed > 1 {
        let text = format!("A maximum of one index field is allowed to be hashed but found {fields_hashed} for 'key'");
        return Err(Error::command(TWO_HASHED, text));
    }
    match names.len() {
        0 => Err(cannot_create("Index keys cannot be an empty object")),
        1..=INDEX_FIELDS_MAX => Ok(()),
        fields => Err(cannot_create(format!("an index has at most {INDEX_FIELDS_MAX} fields, this one has {fields}"))),
    }
}

fn check_direction(name: &str, value: RawBsonRef<'_>) -> Result<()> {
    if let RawBsonRef::String(kind) = value {
        if kind == HASHED {
            return Ok(());
        }
        return Err(if KINDS_REFUSED.contains(&kind) {
            cannot_create(format!("the field '{name}' asks for an index of type '{kind}', which is not supported"))
        } else {
            cannot_create(format!("Unknown index plugin '{kind}'"))
        });
    }
    if direction(value).is_some() {
        return Ok(());
    }
    let kind = notation::type_name(value);
    Err(match value {
        RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Decimal128(_) => {
            cannot_create("Values in the index key pattern cannot be 0.")
        }
        _ => cannot_create(format!(
            "Values in v:2 index key pattern cannot be of type {kind}. Only numbers > 0, numbers < 0, and strings are \
             allowed."
        )),
    })
}

fn check_field_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(cannot_create("Index keys cannot be an empty field."));
    }
    if name == "$**" || name.ends_with(".$**") {
        return Err(cannot_create(format!("the field '{name}' asks for a wildcard index, which is not supported")));
    }
    for (index, part) in name.split('.').enumerate() {
        if part.is_empty() {
            return Err(cannot_create(format!("Index keys cannot contain an empty field: '{name}'")));
        }
        let reference = index > 0 && ["$id", "$ref", "$db"].contains(&part);
        if part.starts_with('$') && !reference {
            let text = "Index key contains an illegal field name: field name starts with '$'.";
            return Err(cannot_create(text));
        }
    }
    Ok(())
}

fn check_expiry(seconds: i64, key: &RawDocument) -> Result<()> {
    if key.iter().count() != 1 {
        return Err(cannot_create(
            "TTL indexes are single-field indexes, compound indexes do not support TTL. Index spec: ".to_owned()
                + &notation::document(key),
        ));
    }
    check_expiry_seconds(seconds)
}

/// Checks the lifetime of a TTL index.
///
/// # Errors
/// `CannotCreateIndex` (67).
pub fn check_expiry_seconds(seconds: i64) -> Result<()> {
    if !(0..=EXPIRE_AFTER_SECONDS_MAX).contains(&seconds) {
        return Err(cannot_create(format!(
            "TTL index 'expireAfterSeconds' option must be within an acceptable range of 0 to \
             {EXPIRE_AFTER_SECONDS_MAX}, but received {seconds}"
        )));
    }
    Ok(())
}

/// Checks that a partial filter has only operators for which a planner can see that a query implies the filter.
fn check_partial_filter(filter: &RawDocument) -> Result<()> {
    for element in filter {
        let (name, value) = element.map_err(handfast_mql::Error::from)?;
        match (name.as_str(), value) {
            ("$and" | "$or", RawBsonRef::Array(branches)) => {
                for branch in branches {
                    if let RawBsonRef::Document(branch) = branch.map_err(handfast_mql::Error::from)? {
                        check_partial_filter(branch)?;
                    }
                }
            }
            (operator, _) if operator.starts_with('$') && !PARTIAL_FILTER_OPERATORS.contains(&operator) => {
                return Err(unsupported_partial(operator));
            }
            (_, RawBsonRef::Document(conditions)) => check_partial_conditions(conditions)?,
            (_, RawBsonRef::RegularExpression(_)) => return Err(unsupported_partial("$regex")),
            _ => {}
        }
    }
    Ok(())
}

fn check_partial_conditions(conditions: &RawDocument) -> Result<()> {
    for element in conditions {
        let (operator, value) = element.map_err(handfast_mql::Error::from)?;
        match operator.as_str() {
            "$exists" if matches!(value, RawBsonRef::Boolean(false) | RawBsonRef::Int32(0)) => {
                return Err(unsupported_partial("$exists: false"));
            }
            operator if operator.starts_with('$') && !PARTIAL_FILTER_OPERATORS.contains(&operator) => {
                return Err(unsupported_partial(operator));
            }
            _ => {}
        }
    }
    Ok(())
}

fn unsupported_partial(operator: &str) -> Error {
    cannot_create(format!("Expression not supported in partial index: {operator}"))
}

fn check_version(value: RawBsonRef<'_>) -> Result<()> {
    match number(value) {
        Some(version) if version == 1.0 || version == 2.0 => Ok(()),
        _ => {
            Err(cannot_create(format!("Invalid index specification: v must be 1 or 2, not {}", notation::value(value))))
        }
    }
}

/// Returns the collation with all of its fields; `None` for the simple one.
fn collation(value: RawBsonRef<'_>) -> Result<Option<RawDocumentBuf>> {
    let given = value.as_document().ok_or_else(|| mismatch("collation", "an object", value))?;
    Ok(Collation::parse(given)?.map(|collation| collation.document().to_owned()))
}

fn as_document(option: &str, value: RawBsonRef<'_>) -> Result<RawDocumentBuf> {
    value.as_document().map(RawDocument::to_owned).ok_or_else(|| mismatch(option, "an object", value))
}

/// Reads a bool, or a number, which old drivers send.
fn as_bool(option: &str, value: RawBsonRef<'_>) -> Result<bool> {
    match (value.as_bool(), number(value)) {
        (Some(flag), _) => Ok(flag),
        (None, Some(number)) => Ok(number != 0.0),
        _ => Err(mismatch(option, "a bool", value)),
    }
}

fn as_seconds(value: RawBsonRef<'_>, spec: &RawDocument) -> Result<i64> {
    match (value.as_i64().or(value.as_i32().map(i64::from)), number(value)) {
        (Some(seconds), _) => Ok(seconds),
        // A cast from float saturates; what is out of range is refused by `validate`. NaN means 0 in MongoDB.
        (None, Some(seconds)) => Ok(seconds as i64),
        _ => Err(cannot_create(format!(
            "TTL index 'expireAfterSeconds' option must be numeric, but received a type of '{}'. Index spec: {}",
            notation::type_name(value),
            notation::document(spec)
        ))),
    }
}

fn number(value: RawBsonRef<'_>) -> Option<f64> {
    match value {
        RawBsonRef::Int32(number) => Some(f64::from(number)),
        RawBsonRef::Int64(number) => Some(number as f64),
        RawBsonRef::Double(number) => Some(number),
        RawBsonRef::Decimal128(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

fn unknown_option(option: &str, document: &RawDocument) -> Error {
    Error::command(
        Code::InvalidIndexSpecificationOption,
        format!(
            "The field '{option}' is not valid for an index specification. Specification: {}",
            notation::document(document)
        ),
    )
}

fn mismatch(option: &str, wanted: &str, value: RawBsonRef<'_>) -> Error {
    let found = notation::type_name(value);
    Error::command(Code::TypeMismatch, format!("The field '{option}' must be {wanted}, but got {found}"))
}

fn bad_value(message: String) -> Error {
    Error::command(Code::BadValue, message)
}

pub(super) fn cannot_create(message: impl Into<String>) -> Error {
    Error::command(Code::CannotCreateIndex, message)
}
