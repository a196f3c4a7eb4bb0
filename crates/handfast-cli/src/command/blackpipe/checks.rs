//! The checks that need no program: the sum of a field, values that occur once, and collections with as many documents each.
//!
//! The data are read into an [`Observation`] first; whether it is right is a function of values.

mod field;

use anyhow::Result;
use bson::{Bson, RawBson, RawBsonRef, RawDocumentBuf, doc, rawdoc};
use clap::Args;
use handfast_mql::order;
use handfast_store::{Aggregate, DocumentStore, Namespace, StoreExt as _};

use self::field::{Field, Sum, hidden_differences};
use super::shell_word::{flag, quoted};
use crate::listing::counted;

/// Databases that are not the program's.
const SYSTEM_DATABASES: [&str; 3] = ["admin", "config", "local"];

/// The checks of the data after each run.
#[derive(Args, Debug)]
pub(super) struct DataChecks {
    /// The sum of a field, such as accounts.balance, has to be that of the run without faults, or accounts.balance=100
    #[arg(long, value_name = "COLLECTION.FIELD[=VALUE]")]
    sum: Vec<Sum>,
    /// Each value of a field, such as orders.number, has to occur once
    #[arg(long, value_name = "COLLECTION.FIELD")]
    unique: Vec<Field>,
    /// Two collections, such as orders outbox, have to have as many documents each
    #[arg(long, value_names = ["COLLECTION", "COLLECTION"], num_args = 2)]
    count_equals: Vec<String>,
}

/// The values that the checks read, each in the order of its flags.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Observation {
    sums: Vec<ObservedSum>,
    /// A value that occurs several times, with their number.
    repeated: Vec<Option<(RawBson, i64)>>,
    counts: Vec<u64>,
    /// The checks that have nothing to look at, a sentence each.
    vacuous: Vec<String>,
}

/// The sum of a field.
#[derive(Clone, Debug, PartialEq)]
struct ObservedSum {
    value: RawBson,
    /// Why it may be the same although the values are other ones.
    hides: Option<&'static str>,
}

impl Observation {
    /// Returns the checks that have nothing to look at, such as one of a collection that is not there. In the run without faults that is a mistake: they would
    /// pass whatever the program does.
    pub(super) fn vacuous(&self) -> &[String] {
        &self.vacuous
    }
}

impl DataChecks {
    /// Returns whether the run without faults says what is right.
    pub(super) fn need_run_without_faults(&self) -> bool {
        self.sum.iter().any(|sum| sum.expected.is_none())
    }

    /// Reads what the checks compare.
    ///
    /// # Errors
    /// The store fails; a collection is in several databases.
    pub(super) async fn observe(&self, store: &impl DocumentStore) -> Result<Observation> {
        let mut observation =
            Observation { sums: Vec::new(), repeated: Vec::new(), counts: Vec::new(), vacuous: Vec::new() };
        for Sum { field, .. } in &self.sum {
            let (namespace, path) = located(store, field).await?;
            let is_number = rawdoc! { "$expr": { "$isNumber": format!("${path}") } };
            let vacuous = match nothing_in(store, namespace.as_ref(), field, path, is_number, "a number").await? {
                None => other_values_in(store, namespace.as_ref(), field, path).await?,
                nothing => nothing,
            };
            observation.vacuous.extend(vacuous);
            let sum = observed_sum(store, namespace, path).await?;
            if let Some(reason) = sum.hides {
                let value = shown(sum.value.as_raw_bson_ref());
                observation.vacuous.push(format!("the sum of {field} is {value}, {reason}"));
            }
            observation.sums.push(sum);
        }
        for field in &self.unique {
            let (namespace, path) = located(store, field).await?;
            let exists = RawDocumentBuf::try_from(&doc! { path: { "$exists": true } })?;
            let vacuous = nothing_in(store, namespace.as_ref(), field, path, exists.clone(), "a value").await?;
            observation.vacuous.extend(vacuous);
            let pipeline = vec![
                rawdoc! { "$match": exists },
                rawdoc! { "$group": { "_id": format!("${path}"), "count": { "$sum": 1_i64 } } },
                rawdoc! { "$match": { "count": { "$gt": 1 } } },
                rawdoc! { "$sort": { "_id": 1 } },
                rawdoc! { "$limit": 1 },
            ];
            let found = aggregated(store, namespace, pipeline).await?;
            observation.repeated.push(found.as_ref().and_then(|group| {
                let count = group.get("count").ok().flatten().and_then(RawBsonRef::as_i64)?;
                Some((group.get("_id").ok().flatten()?.into(), count))
            }));
        }
        for pair in self.count_equals.chunks(2) {
            let mut are_there = false;
            for collection in pair {
                let namespace = namespace_of(store, collection).await?;
                are_there |= namespace.is_some();
                observation.counts.push(match namespace {
                    Some(namespace) => store.count_matching(&namespace, rawdoc! {}).await?,
                    None => 0,
                });
            }
            if !are_there {
                observation.vacuous.push(format!("there is neither a collection '{}'", pair.join("' nor one '")));
            }
        }
        Ok(observation)
    }

    /// Returns what is wrong, a sentence each. `right` is the observation of the run without faults.
    pub(super) fn violations(&self, found: &Observation, right: Option<&Observation>) -> Vec<String> {
        let mut wrong = Vec::new();
        for (index, (Sum { field, expected }, sum)) in self.sum.iter().zip(&found.sums).enumerate() {
            let ObservedSum { value, hides } = sum;
            let sum = value.as_raw_bson_ref();
            let given = expected.as_ref().map(|number| number.comparable_with(sum));
            let expected = match &given {
                Some(given) => given.as_raw_bson_ref(),
                None => {
                    right.and_then(|right| right.sums.get(index)).map_or(sum, |right| right.value.as_raw_bson_ref())
                }
            };
            if order::compare(sum, expected).is_ne() {
                wrong.push(format!("the sum of {field} is {}, not {}", shown(sum), shown(expected)));
            } else if let Some(reason) = hides {
                wrong.push(format!("the sum of {field} is {}, {reason}", shown(sum)));
            }
        }
        for (field, repeated) in self.unique.iter().zip(&found.repeated) {
            if let Some((value, count)) = repeated {
                wrong.push(format!("{field} has {} in {count} documents", shown(value.as_raw_bson_ref())));
            }
        }
        for (names, counts) in self.count_equals.chunks(2).zip(found.counts.chunks(2)) {
            if let ([first, second], [one, other]) = (names, counts)
                && one != other
            {
                wrong.push(format!("{first} has {one} documents, and {second} has {other}"));
            }
        }
        wrong
    }

    /// Returns the flags as words of a command line.
    pub(super) fn words(&self) -> Vec<String> {
        let sums = self.sum.iter().map(|sum| flag("--sum", &sum.to_string()));
        let unique = self.unique.iter().map(|field| flag("--unique", &field.to_string()));
        let pairs = self.count_equals.chunks(2);
        let counts = pairs.map(|pair| {
            format!("--count-equals {}", pair.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(" "))
        });
        sums.chain(unique).chain(counts).collect()
    }
}

/// Sums up a field.
async fn observed_sum(store: &impl DocumentStore, namespace: Option<Namespace>, path: &str) -> Result<ObservedSum> {
    let field = format!("${path}");
    let counts = rawdoc! { "$and": [{ "$isNumber": field.as_str() }, { "$ne": [field.as_str(), 0] }] };
    // `$abs` fails for the smallest integer of 64 bits, which hides nothing.
    let is_smallest = rawdoc! { "$eq": [field.as_str(), i64::MIN] };
    let size = rawdoc! { "$cond": [counts, { "$cond": [is_smallest, i64::MAX, { "$abs": field.as_str() }] }, null] };
    let pipeline = vec![
        rawdoc! { "$group": { "_id": null, "value": { "$sum": field }, "smallest": { "$min": size } } },
        rawdoc! { "$set": { "is_rounded": { "$eq": [{ "$add": ["$value", "$smallest"] }, "$value"] } } },
    ];
    let found = aggregated(store, namespace, pipeline).await?;
    let of = |name| found.as_ref().and_then(|group| group.get(name).ok().flatten());
    let value = of("value").map_or(RawBson::Int32(0), RawBson::from);
    let rounded =
        "which stays as it is when the smallest of the values is added once more: sum integers, or values of one size";
    let is_rounded = of("is_rounded").and_then(RawBsonRef::as_bool) == Some(true);
    let hides = hidden_differences(value.as_raw_bson_ref()).or(is_rounded.then_some(rounded));
    Ok(ObservedSum { value, hides })
}

/// Returns why a sum leaves documents out: the field has a value there, which is no number.
async fn other_values_in(
    store: &impl DocumentStore,
    namespace: Option<&Namespace>,
    field: &Field,
    path: &str,
) -> Result<Option<String>> {
    let Some(namespace) = namespace else { return Ok(None) };
    let other = doc! { path: { "$ne": null }, "$expr": { "$not": [{ "$isNumber": format!("${path}") }] } };
    let count = store.count_matching(namespace, RawDocumentBuf::try_from(&other)?).await?;
    Ok((count > 0)
        .then(|| format!("the sum of {field} leaves out {}, where it is no number", counted(count, "documents"))))
}

/// Returns the first result of a pipeline over a collection, if both are there.
async fn aggregated(
    store: &impl DocumentStore,
    namespace: Option<Namespace>,
    pipeline: Vec<RawDocumentBuf>,
) -> Result<Option<RawDocumentBuf>> {
    let Some(namespace) = namespace else { return Ok(None) };
    Ok(store.aggregate_all(Aggregate::new(namespace, pipeline)).await?.into_iter().next())
}

/// Returns why a check of a field has nothing to look at: there is no such collection, or none of its documents has such a value.
async fn nothing_in(
    store: &impl DocumentStore,
    namespace: Option<&Namespace>,
    field: &Field,
    path: &str,
    has_value: RawDocumentBuf,
    value: &str,
) -> Result<Option<String>> {
    let Some(namespace) = namespace else {
        let collections = field.splits().map(|(collection, _)| format!("'{collection}'")).collect::<Vec<_>>();
        return Ok(Some(format!(
            "there is no collection {}, of which '{field}' would be a field",
            collections.join(" or ")
        )));
    };
    let is_empty = store.count_matching(namespace, rawdoc! {}).await? == 0;
    if is_empty || store.count_matching(namespace, has_value).await? > 0 {
        return Ok(None);
    }
    Ok(Some(format!("no document of the collection '{}' has {value} in '{path}'", namespace.collection())))
}

/// Returns the collection of a field, with the path in its documents: the collection with the longest name that is there. Without one the
/// collection is `None`.
async fn located<'a>(store: &impl DocumentStore, field: &'a Field) -> Result<(Option<Namespace>, &'a str)> {
    let mut path = "";
    for (collection, rest) in field.splits() {
        path = rest;
        if let Some(namespace) = namespace_of(store, collection).await? {
            return Ok((Some(namespace), path));
        }
    }
    Ok((None, path))
}

/// Returns the collection with its database; `None` if there is no such collection.
async fn namespace_of(store: &impl DocumentStore, collection: &str) -> Result<Option<Namespace>> {
    let mut found = Vec::new();
    for database in store.list_databases().await? {
        if SYSTEM_DATABASES.contains(&database.as_str()) {
            continue;
        }
        if store.list_collections(&database).await?.iter().any(|listed| listed.name == collection) {
            found.push(database);
        }
    }
    match found.as_slice() {
        [] => Ok(None),
        [database] => Ok(Some(Namespace::new(database, collection)?)),
        several => anyhow::bail!(
            "the databases {} each have a collection '{collection}', and the checks of data need one: use --check",
            several.join(", ")
        ),
    }
}

fn shown(value: RawBsonRef<'_>) -> String {
    Bson::try_from(RawBson::from(value)).map_or_else(|error| error.to_string(), |value| value.to_string())
}

#[cfg(test)]
mod tests;
