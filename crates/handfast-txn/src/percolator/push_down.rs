//! Derives from a query's filter a weaker one, which the store can evaluate on all its documents.
//!
//! The store cannot evaluate the filter itself: beside the documents of users it holds tombstones, versions that a snapshot does
//! not see, and the hidden field. An expression can fail on a tombstone, and can read the hidden field. Without a filter, the store
//! would send whole collections. So the engine sends it the comparisons of fields alone, and every document that it
//! finds is evaluated here, by handfast-mql, on the version that the snapshot has:
//!
//! ```text
//! {a: 1, $expr: ..}                 ->   {a: {$eq: 1}, "_hf.del": {$ne: true}}
//! {$expr: {$eq: ["$a", "$$v"]}}     ->   {a: {$eq: <the value of v>}, "_hf.del": {$ne: true}}
//! {$or: [{a: 1}, {$expr: ..}]}      ->   {"_hf.del": {$ne: true}}
//! {$nor: [{a: 1}, {$expr: ..}]}     ->   {$nor: [{a: {$eq: 1}}], "_hf.del": {$ne: true}}
//! ```
//!
//! Of an expression, the equalities that follow from it are sent ([`implied`]): the store may have an index for them.
//! A conjunction leaves out the conditions that cannot be sent. A disjunction with such a branch is left out as a whole. A negation is
//! sent only if the store evaluates its condition exactly: [`Weaker::is_exact`].
//!
//! Invariants: a document that matches a filter as the store shows it to users, matches the weaker one as it is stored;
//! tombstones never do; no document makes it fail. An `_id` is stored in the first spelling that it had (1 for 1.0), so
//! only comparisons of it are sent.
//!
//! Source: spec: transactions, "Push-down".

#[cfg(test)]
mod tests;

use bson::raw::{CStr, CString, cstr};
use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use handfast_mql::collation::compares_text;
use handfast_mql::filter::{Choices, Comparison, ElementNode, FieldNode, Node, Operand, Predicate, RegexTest, implied};
use handfast_mql::{CompileOptions, Context, Error, Filter, Path, Result};
use handfast_store::{Aggregate, Explain, Explained, Find, Sources};

use super::row::FIELD;

/// Conditions within conditions that are sent: as a document they have at most three times as many levels, and a store takes 100.
const LEVELS_MAX: usize = 25;
/// Bytes of a filter that is sent: a store takes 16 MiB, together with the rest of the request.
const FILTER_BYTES_MAX: usize = 15 * 1024 * 1024;

/// A weaker filter for the store.
#[derive(Clone, Debug)]
pub(super) struct Weaker {
    pub(super) filter: RawDocumentBuf,
    /// Whether it matches the same documents as the original filter, apart from tombstones, which it never matches.
    pub(super) is_exact: bool,
}

/// Returns the filter that is sent to the store for this one.
pub(super) fn pushed_down(filter: &Filter, context: &Context) -> Weaker {
    let sent = of_node(filter.root(), &Scope { context, is_whole: true, levels: LEVELS_MAX });
    let sent = sent.filter(|sent| sent.filter.as_bytes().len() <= FILTER_BYTES_MAX);
    let mut sent = sent.unwrap_or(Weaker { filter: RawDocumentBuf::new(), is_exact: filter.is_empty() });
    sent.filter.append(cstr!("_hf.del"), rawdoc! { "$ne": true });
    sent
}

/// Returns the explain request for the store, with the filter that it gets when the request is carried out. For a pipeline that is the
/// filter of its first `$match` stages.
pub(super) fn explained(explain: Explain, sources: &Sources) -> Result<Explain> {
    let weaker = |filter: &RawDocument, variables: &RawDocument| {
        let filter = Filter::compile(filter, &CompileOptions::with_variables(variables)?)?;
        Ok::<_, Error>(pushed_down(&filter, &sources.context(variables)).filter)
    };
    let explained = match explain.explained {
        Explained::Find(find) => {
            let filter = weaker(&find.filter, &find.variables)?;
            let (projection, variables) = (RawDocumentBuf::new(), RawDocumentBuf::new());
            Explained::Find(Find { filter, projection, variables, ..find })
        }
        Explained::Aggregate(aggregate) => {
            let filters = aggregate.pipeline.iter().map_while(|stage| stage.get_document("$match").ok());
            let filters: RawArrayBuf = filters.map(|filter| RawBson::Document(filter.to_owned())).collect();
            let filter = if filters.is_empty() {
                rawdoc! {}
            } else {
                rawdoc! { "$and": filters }
            };
            let pipeline = vec![rawdoc! { "$match": weaker(&filter, &aggregate.variables)? }];
            Explained::Aggregate(Aggregate { pipeline, variables: RawDocumentBuf::new(), ..aggregate })
        }
    };
    Ok(Explain { explained, ..explain })
}

/// The context of a condition.
#[derive(Clone, Copy)]
struct Scope<'c> {
    /// The values of variables.
    context: &'c Context,
    /// Whether it is about the whole document, not an element of an array.
    is_whole: bool,
    /// The levels of nesting that are left.
    levels: usize,
}

/// Returns the condition that is sent for a node; `None` if it is left out.
fn of_node(node: &Node, scope: &Scope<'_>) -> Option<Weaker> {
    let inner = Scope { levels: scope.levels.checked_sub(1)?, ..*scope };
    let sent = |nodes: &[Node]| nodes.iter().map(|node| of_node(node, &inner)).collect::<Vec<_>>();
    match node {
        Node::And(nodes) => conjunction(sent(nodes)),
        Node::Or(nodes) => {
            let branches: Vec<_> = sent(nodes).into_iter().collect::<Option<_>>()?;
            let is_exact = branches.iter().all(|branch| branch.is_exact);
            logical(cstr!("$or"), branches, is_exact)
        }
        Node::Nor(nodes) => negation(sent(nodes)),
        Node::Not(node) => negation(vec![of_node(node, &inner)]),
        Node::Field(field) => of_field(field, &inner),
        Node::Schema(_) => None,
        Node::Expression(expression) => {
            let fields = implied(expression, scope.context);
            let sent = conjunction(fields.iter().map(|field| of_field(field, &inner)).collect())?;
            Some(Weaker { is_exact: false, ..sent })
        }
    }
}

/// Joins the parts that can be sent. Parts with different names share one document.
fn conjunction(parts: Vec<Option<Weaker>>) -> Option<Weaker> {
    let is_exact = parts.iter().all(|part| part.as_ref().is_some_and(|part| part.is_exact));
    let mut parts = parts.into_iter().flatten();
    let mut filter = parts.next()?.filter;
    let mut others = RawArrayBuf::new();
    for part in parts {
        let of_same_name = |(name, _): (&CStr, RawBsonRef<'_>)| matches!(filter.get(name.as_str()), Ok(Some(_)));
        if part.filter.iter().flatten().any(of_same_name) {
            others.push(part.filter);
        } else {
            part.filter.iter().flatten().for_each(|(name, value)| filter.append(name, value));
        }
    }
    if !others.is_empty() {
        let others = rawdoc! { "$and": others };
        // The filter may have an `$and` already.
        filter = match filter.get("$and") {
            Ok(None) => joined(filter, others),
            _ => rawdoc! { "$and": [filter, others] },
        };
    }
    Some(Weaker { filter, is_exact })
}

fn joined(mut filter: RawDocumentBuf, other: RawDocumentBuf) -> RawDocumentBuf {
    other.iter().flatten().for_each(|(name, value)| filter.append(name, value));
    filter
}

/// Negates the parts that mean the same to the store.
fn negation(parts: Vec<Option<Weaker>>) -> Option<Weaker> {
    let count = parts.len();
    let exact: Vec<_> = parts.into_iter().flatten().filter(|part| part.is_exact).collect();
    let is_exact = exact.len() == count;
    logical(cstr!("$nor"), exact, is_exact)
}

fn logical(operator: &CStr, branches: Vec<Weaker>, is_exact: bool) -> Option<Weaker> {
    if branches.is_empty() {
        return None;
    }
    let filters: RawArrayBuf = branches.into_iter().map(|branch| RawBson::Document(branch.filter)).collect();
    let mut filter = RawDocumentBuf::new();
    filter.append(operator, filters);
    Some(Weaker { filter, is_exact })
}

fn of_field(field: &FieldNode, scope: &Scope<'_>) -> Option<Weaker> {
    let first = field.path().components().first()?.name();
    let is_kept_apart = scope.is_whole && first == FIELD;
    if is_kept_apart || !is_plain(field.path()) {
        return None;
    }
    let is_id = scope.is_whole && first == "_id";
    let has_collation = scope.context.collation().is_some();
    let (condition, is_exact) = match field.predicate() {
        // The store compares by bytes.
        Predicate::Compare(_, operand) if has_collation && compares_text(operand.value()) => return None,
        Predicate::In(choices)
            if has_collation && choices.values().iter().any(|choice| compares_text(choice.value())) =>
        {
            return None;
        }
        Predicate::ElementValue(_) if has_collation => return None,
        Predicate::Compare(comparison, operand) => (compared(*comparison, operand)?, true),
        Predicate::In(choices) => (chosen(choices)?, true),
        Predicate::Exists => (rawdoc! { "$exists": true }, true),
        _ if is_id => return None,
        Predicate::Regex(regex) if is_literal(regex) => (rawdoc! { "$regex": regex.source() }, false),
        Predicate::ElementDocument(node) => {
            let element = of_node(node, &Scope { is_whole: false, ..*scope })?;
            (rawdoc! { "$elemMatch": element.filter }, false)
        }
        Predicate::ElementValue(nodes) => (rawdoc! { "$elemMatch": of_element(nodes)? }, false),
        Predicate::Regex(_)
        | Predicate::Type(_)
        | Predicate::Modulo { .. }
        | Predicate::Size(_)
        | Predicate::Bits(_) => {
            return None;
        }
    };
    let mut filter = RawDocumentBuf::new();
    filter.append(CString::try_from(field.path().as_str()).ok()?, condition);
    Some(Weaker { filter, is_exact })
}

/// Returns the comparisons of one element, one for each operator.
fn of_element(nodes: &[ElementNode]) -> Option<RawDocumentBuf> {
    let mut condition = RawDocumentBuf::new();
    for node in nodes {
        let compared = match node {
            ElementNode::Is(Predicate::Compare(comparison, operand)) => compared(*comparison, operand),
            ElementNode::Is(Predicate::In(choices)) => chosen(choices),
            _ => None,
        };
        for (name, value) in compared.iter().flat_map(|compared| compared.iter().flatten()) {
            if matches!(condition.get(name.as_str()), Ok(None)) {
                condition.append(name, value);
            }
        }
    }
    (!condition.is_empty()).then_some(condition)
}

fn compared(comparison: Comparison, operand: &Operand) -> Option<RawDocumentBuf> {
    let operator = match comparison {
        Comparison::Equal => cstr!("$eq"),
        Comparison::Less => cstr!("$lt"),
        Comparison::LessOrEqual => cstr!("$lte"),
        Comparison::Greater => cstr!("$gt"),
        Comparison::GreaterOrEqual => cstr!("$gte"),
    };
    let value = operand.value();
    let is_sent = is_scalar(value) || (comparison == Comparison::Equal && is_container(value));
    let mut condition = RawDocumentBuf::new();
    condition.append(operator, value);
    is_sent.then_some(condition)
}

fn chosen(choices: &Choices) -> Option<RawDocumentBuf> {
    let values = || choices.values().iter().map(Operand::value);
    let is_sent = choices.patterns().is_empty() && values().all(|value| is_scalar(value) || is_container(value));
    is_sent.then(|| rawdoc! { "$in": values().map(RawBson::from).collect::<RawArrayBuf>() })
}

/// Returns whether all stores compare with a value of this type in the same way.
fn is_scalar(value: RawBsonRef<'_>) -> bool {
    matches!(
        value,
        RawBsonRef::Double(_)
            | RawBsonRef::Int32(_)
            | RawBsonRef::Int64(_)
            | RawBsonRef::Decimal128(_)
            | RawBsonRef::String(_)
            | RawBsonRef::ObjectId(_)
            | RawBsonRef::Boolean(_)
            | RawBsonRef::DateTime(_)
            | RawBsonRef::Timestamp(_)
            | RawBsonRef::Binary(_)
            | RawBsonRef::Null
    )
}

/// Returns whether a value is compared for equality only.
fn is_container(value: RawBsonRef<'_>) -> bool {
    matches!(value, RawBsonRef::Document(_) | RawBsonRef::Array(_))
}

/// Returns whether no store takes a name of the path for an operator, or refuses it.
fn is_plain(path: &Path) -> bool {
    let is_plain = |name: &str| match name {
        "$ref" | "$id" | "$db" => true,
        name => !name.is_empty() && !name.starts_with('$'),
    };
    path.components().iter().all(|component| is_plain(component.name()))
}

/// Returns whether a regular expression is a literal, at the beginning or anywhere: a store evaluates it in linear time.
fn is_literal(regex: &RegexTest) -> bool {
    let mut letters = regex.source().strip_prefix('^').unwrap_or(regex.source()).chars();
    while let Some(letter) = letters.next() {
        let is_itself = match letter {
            '\\' => letters.next().is_some_and(|escaped| escaped.is_ascii_punctuation()),
            letter => letter.is_alphanumeric() || " _-@/:,;".contains(letter),
        };
        if !is_itself {
            return false;
        }
    }
    regex.options().is_empty()
}
