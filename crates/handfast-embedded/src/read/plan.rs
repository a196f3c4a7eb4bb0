//! Chooses the access path to the candidates of a query.
//!
//! The order of preference: a hint; one document or a few by `_id`; the index with the most leading fields fixed to points and
//! then one more bounded; an index in the order of the sort; a range of `_id`; a scan of the collection.
//!
//! An index is not used where it would miss documents:
//! - a sparse or partial index, if documents outside of it may match;
//! - two bounds at once on a field with arrays, where different elements may match each (`{$gt: 1, $lt: 3}`);
//! - bounds on two fields of the same array, unless an `$elemMatch` has both conditions ([`Element`]);
//! - a path that names an array's element by number.
//!
//! A comparison of `$expr` is an equality of the filter, and treated as one, or a comparison of the whole value at a path ([`WholeComparison`]).
//! The latter bounds a field only while no document has an array on its path (the index is not multikey in that field): then the
//! key is the whole value. A sparse index may be used if a missing field does not fulfil it, again only without arrays: `"$a.b"` of
//! `{a: [{c: 1}]}` is an empty array and not missing, but such an index leaves the document out. A partial index needs conditions
//! of the filter, or equalities, from which its own filter follows.
//!
//! An index has the strings of its own collation. For a query with another one (or none) it is used for values without strings, and not for
//! the order of a sort. The order of `_id` is that of bytes.

use std::cell::OnceCell;
use std::ops::Bound;
use std::sync::Arc;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use handfast_mql::filter::{Comparison, Filter, NecessaryConditions, Node, Predicate, WholeComparison};
use handfast_mql::key::Direction as FieldDirection;
use handfast_mql::{Code, Collation, Context, Sort, order};
use handfast_store::index::{Index, same_key};
use handfast_store::selection::{check_bounds, named_keys};
use handfast_store::{Error as StoreError, Find, Hint, IndexSpec, Result as StoreResult};

use super::bounds::{Interval, intersect, of_predicate, of_whole_comparison, tightest};
use super::element::Element;
use super::scan::Access;
use crate::catalog::{Collection, CollectionIndex};
use crate::engine::{Direction, Range};

/// The ranges of one index scan: with more, of a product of `$in` lists, seeking each does not pay.
const RANGES_MAX: usize = 1000;

/// The plan of a query.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) access: Access,
    /// The candidates come in the order of the sort.
    pub(crate) sorted: bool,
    /// All candidates match the filter.
    pub(crate) filtered: bool,
    /// The bounds of each field of the index, for explain.
    pub(crate) bounds: Vec<(String, Vec<String>)>,
}

impl Plan {
    /// Returns the plan for a collection that does not exist.
    pub(crate) fn nothing() -> Self {
        Plan::new(Access::Nothing)
    }

    fn new(access: Access) -> Self {
        Plan { access, sorted: false, filtered: false, bounds: Vec::new() }
    }
}

/// The rank of a plan with an index. The fields are in the order of their weight.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct IndexRank {
    /// Leading fields fixed to points.
    points: usize,
    /// Whether the field behind them is bounded.
    bounded: bool,
    /// The index gives the order of the sort.
    ordered: bool,
}

/// A plan with an index that could be used.
struct Candidate {
    plan: Plan,
    rank: IndexRank,
}

/// Chooses a plan.
///
/// # Errors
/// `BadValue` (2) for a hint that names no index; the errors of `min` and `max`.
pub(crate) fn choose(
    collection: &Collection,
    filter: &Filter,
    context: &Context,
    sort: &Sort,
    find: &Find,
) -> StoreResult<Plan> {
    check_bounds(find)?;
    let query = &Query::new(filter, context, sort, collection)?;
    let conditions = &query.of_bytes.conditions;
    if let Some(hint) = &find.hint {
        return hinted(collection, query, find, hint);
    }
    let named = named_alone(filter, conditions);
    let filtered = named.is_some();
    if let Some(keys) = named.or_else(|| points(conditions)) {
        let sorted = keys.len() < 2 || by_id(&query.of_bytes.sort) == Some(Direction::Forward);
        return Ok(Plan { sorted, filtered, ..Plan::new(Access::Points(keys)) });
    }
    let usable = collection.indexes.iter().filter(|index| index.complete && !index.spec().hidden);
    let candidates = usable.filter_map(|index| {
        let usable = query.under(index.index.collation());
        covers(index, &usable.conditions).then(|| with_index(index, &usable.conditions, &usable.sort))
    });
    let best = candidates.max_by(|one, other| one.rank.cmp(&other.rank));
    if let Some(best) = best
        && best.rank > IndexRank::default()
        && !(best.rank == IndexRank { ordered: true, ..IndexRank::default() } && sort.is_empty())
    {
        return Ok(best.plan);
    }
    Ok(documents(conditions, &query.of_bytes.sort))
}

/// The parts of a query that the indexes under one collation can serve.
struct Usable<'q> {
    conditions: NecessaryConditions<'q>,
    /// Empty if such an index is in another order.
    sort: Sort,
}

/// A query, as indexes under different collations see it.
struct Query<'q> {
    filter: &'q Filter,
    context: &'q Context,
    collation: Option<&'q Collation>,
    /// For indexes without a collation.
    of_bytes: Usable<'q>,
    /// For indexes under the collation of the query, if it has one.
    own: Option<Usable<'q>>,
    /// For indexes with a collation if the query has none. Most collections have no such index, and pay nothing for it.
    without_text: OnceCell<Usable<'q>>,
    unsorted: Sort,
}

impl<'q> Query<'q> {
    fn new(filter: &'q Filter, context: &'q Context, sort: &Sort, collection: &Collection) -> StoreResult<Self> {
        let unsorted = Sort::compile(&RawDocumentBuf::new())?;
        let collation = filter.collation();
        let whole = Usable { conditions: filter.necessary_conditions_under(context, collation), sort: sort.clone() };
        let (of_bytes, own) = match collation {
            None => (whole, None),
            Some(_) => {
                let conditions = filter.conditions_without_text(context);
                // A collection with a default collation has no text in `_id`, whose order is then the same under all.
                let is_by_id = collection.options.collation.is_some() && by_id(sort).is_some();
                let sort = if is_by_id { sort.clone() } else { unsorted.clone() };
                (Usable { conditions, sort }, Some(whole))
            }
        };
        Ok(Query { filter, context, collation, of_bytes, own, without_text: OnceCell::new(), unsorted })
    }

    /// Returns what an index under a collation can serve.
    fn under(&self, collation: Option<&Collation>) -> &Usable<'q> {
        match (collation, &self.own) {
            (None, _) => &self.of_bytes,
            (Some(_), Some(own)) if collation == self.collation => own,
            // An index of bytes serves no strings either.
            (Some(_), Some(_)) => &self.of_bytes,
            (Some(_), None) => self.without_text.get_or_init(|| Usable {
                conditions: self.filter.conditions_without_text(self.context),
                sort: self.unsorted.clone(),
            }),
        }
    }
}

/// Returns the `_id` keys that a filter names one by one, if it has no other condition. No `_id` is an array or missing, so every document under
/// these keys matches.
fn named_alone(filter: &Filter, conditions: &NecessaryConditions<'_>) -> Option<Vec<Vec<u8>>> {
    let is_alone = match filter.root() {
        Node::Field(_) => true,
        Node::And(conditions) => matches!(&conditions[..], [Node::Field(_)]),
        _ => false,
    };
    if is_alone { named_keys(conditions) } else { None }
}

/// Returns the `_id` keys that the conditions of a filter leave.
fn points(conditions: &NecessaryConditions<'_>) -> Option<Vec<Vec<u8>>> {
    let points = |interval: &Interval| interval.as_point().map(<[u8]>::to_vec);
    // No `_id` is an array, so every predicate bounds it.
    id_intervals(conditions)?.iter().map(points).collect()
}

fn id_intervals(conditions: &NecessaryConditions<'_>) -> Option<Vec<Interval>> {
    whole_value_intervals(conditions, "_id", None)
}

/// Returns the bounds of a field that has no arrays in any document: one value fulfils all of the conditions.
fn whole_value_intervals(
    conditions: &NecessaryConditions<'_>,
    name: &str,
    collation: Option<&Collation>,
) -> Option<Vec<Interval>> {
    let of_filter = conditions.predicates(name).filter_map(|predicate| of_predicate(predicate, collation));
    let of_expressions = conditions.whole_comparisons(name).map(|whole| of_whole_comparison(whole, collation));
    of_filter.chain(of_expressions).reduce(|one, other| intersect(&one, &other))
}

/// Returns the plan that scans the collection, or a range of it, in the order of `_id`.
fn documents(conditions: &NecessaryConditions<'_>, sort: &Sort) -> Plan {
    let direction = by_id(sort);
    let range = match id_intervals(conditions).as_deref() {
        Some([]) => return Plan::new(Access::Nothing),
        Some([first, .., last]) => {
            let around = Interval { from: first.from.clone(), to: last.to.clone() };
            around.range(&[], FieldDirection::Ascending)
        }
        Some([only]) => only.range(&[], FieldDirection::Ascending),
        None => (Bound::Unbounded, Bound::Unbounded),
    };
    let access = Access::Documents { range: unprefixed(range), direction: direction.unwrap_or(Direction::Forward) };
    Plan { sorted: direction.is_some(), ..Plan::new(access) }
}

/// Removes the start of a range with an empty prefix, as the empty key is no bound.
fn unprefixed((start, end): Range) -> Range {
    let start = if start == Bound::Included(Vec::new()) { Bound::Unbounded } else { start };
    (start, end)
}

/// Returns the direction of `_id`, if the sort begins with it.
fn by_id(sort: &Sort) -> Option<Direction> {
    match sort.fields().first() {
        // `_id` is unique, so further fields do not matter.
        Some(field) if field.path().as_str() == "_id" => Some(scan_direction(field.direction())),
        _ => None,
    }
}

fn scan_direction(direction: FieldDirection) -> Direction {
    match direction {
        FieldDirection::Ascending => Direction::Forward,
        FieldDirection::Descending => Direction::Backward,
    }
}

fn with_index(index: &Arc<CollectionIndex>, conditions: &NecessaryConditions<'_>, sort: &Sort) -> Candidate {
    let fields = Fields::of(index, conditions);
    let (ranges, points) = fields.ranges(&index.index);
    let order = fields.order(index, sort, points);
    let direction = order.unwrap_or(Direction::Forward);
    let mut ranges = ranges;
    if direction == Direction::Backward {
        ranges.reverse();
    }
    let bounds = fields.texts(index);
    let access =
        if fields.impossible() { Access::Nothing } else { Access::Index { index: index.clone(), ranges, direction } };
    let bounded = fields.0.get(points).is_some_and(Option::is_some);
    let rank = IndexRank { points, bounded, ordered: order.is_some() };
    Candidate { plan: Plan { access, sorted: order.is_some(), filtered: false, bounds }, rank }
}

/// The intervals of each field of an index that follow from the filter; `None` for an unbounded field.
struct Fields(Vec<Option<Vec<Interval>>>);

impl Fields {
    fn of(index: &CollectionIndex, conditions: &NecessaryConditions<'_>) -> Self {
        let mut fields = Vec::new();
        let mut array_bounded = false;
        let element = Element::of(index, conditions);
        for (position, (name, _)) in index.spec().key.iter().flatten().enumerate() {
            let has_arrays = index.multikey & (1 << position) != 0;
            if has_arrays && let Some(element) = &element {
                // One element matches the `$elemMatch`; other conditions on the array may match another one.
                fields.push(element.intervals(index, position));
                continue;
            }
            // Fields through the same array: different elements may match the conditions on each.
            if index.index.is_positional(position) || (has_arrays && array_bounded) {
                fields.push(None);
                continue;
            }
            let chosen = if has_arrays {
                let of_predicate = |predicate: &Predicate| of_predicate(predicate, index.index.collation());
                tightest(conditions.predicates(name.as_str()).filter_map(of_predicate))
            } else {
                whole_value_intervals(conditions, name.as_str(), index.index.collation())
            };
            array_bounded |= has_arrays && chosen.is_some();
            fields.push(chosen);
        }
        Fields(fields)
    }

    /// Returns whether no document can match.
    fn impossible(&self) -> bool {
        self.0.iter().flatten().any(Vec::is_empty)
    }

    /// Returns the ranges of keys, in order, and the number of leading fields that are fixed to points.
    fn ranges(&self, index: &Index) -> (Vec<Range>, usize) {
        let mut prefixes: Vec<Vec<u8>> = vec![Vec::new()];
        let mut points = 0;
        for (field, direction) in self.0.iter().zip(index.directions()) {
            let Some(values) = field.as_ref().and_then(|intervals| as_points(intervals)) else {
                break;
            };
            if prefixes.len().saturating_mul(values.len()) > RANGES_MAX {
                break;
            }
            prefixes =
                prefixes.iter().flat_map(|prefix| values.iter().map(|value| join(prefix, value, *direction))).collect();
            points += 1;
        }
        let next = self.0.get(points).and_then(Option::as_ref).zip(index.directions().get(points));
        let mut ranges: Vec<Range> = match next {
            Some((intervals, direction)) if prefixes.len().saturating_mul(intervals.len()) <= RANGES_MAX => prefixes
                .iter()
                .flat_map(|prefix| intervals.iter().map(|interval| interval.range(prefix, *direction)))
                .collect(),
            _ => prefixes.iter().map(|prefix| crate::engine::prefix_range(prefix)).collect(),
        };
        // Descending fields reverse the order of their values. Ranges do not overlap, so their starts give the order.
        ranges.sort_by(|one, other| start(one).cmp(start(other)));
        (ranges, points)
    }

    /// Returns the direction of the scan that gives the order of the sort, if there is one.
    fn order(&self, index: &CollectionIndex, sort: &Sort, points: usize) -> Option<Direction> {
        if sort.is_empty() {
            return None;
        }
        let directions = index.index.directions();
        let names: Vec<_> = index.spec().key.iter().flatten().map(|(name, _)| name.as_str()).collect();
        let single = |position: usize| self.0[position].as_ref().is_some_and(|intervals| intervals.len() == 1);
        let fixed = |position: usize| position < points && single(position) && index.multikey & (1 << position) == 0;
        // Only fields with one point: with several, the order would restart at each.
        let mut position = (0..points).take_while(|&position| fixed(position)).count();
        let first_position = position;
        let mut turned = None;
        for field in sort.fields() {
            let name = field.path().as_str();
            if names[..first_position].contains(&name) {
                // The field has one value.
                continue;
            }
            if names.get(position) != Some(&name) || index.multikey & (1 << position) != 0 {
                return None;
            }
            let opposite = directions[position] != field.direction();
            if *turned.get_or_insert(opposite) != opposite {
                return None;
            }
            position += 1;
        }
        Some(if turned == Some(true) { Direction::Backward } else { Direction::Forward })
    }

    fn texts(&self, index: &CollectionIndex) -> Vec<(String, Vec<String>)> {
        let names = index.spec().key.iter().flatten().map(|(name, _)| name.as_str().to_owned());
        let everything = vec![Interval::everything()];
        names
            .zip(&self.0)
            .zip(index.index.directions())
            .map(|((name, field), direction)| {
                let intervals = field.as_ref().unwrap_or(&everything);
                (name, intervals.iter().map(|interval| interval.text(*direction)).collect())
            })
            .collect()
    }
}

fn start(range: &Range) -> &[u8] {
    match &range.0 {
        Bound::Included(start) | Bound::Excluded(start) => start,
        Bound::Unbounded => &[],
    }
}

fn as_points(intervals: &[Interval]) -> Option<Vec<&[u8]>> {
    intervals.iter().map(Interval::as_point).collect()
}

fn join(prefix: &[u8], value: &[u8], direction: FieldDirection) -> Vec<u8> {
    let mut joined = prefix.to_vec();
    match direction {
        FieldDirection::Ascending => joined.extend_from_slice(value),
        FieldDirection::Descending => joined.extend(value.iter().map(|byte| !byte)),
    }
    joined
}

/// Returns whether the index contains every document that the filter matches.
fn covers(index: &CollectionIndex, conditions: &NecessaryConditions<'_>) -> bool {
    if let Some(partial) = index.index.partial() {
        return implies(conditions, partial);
    }
    if index.spec().sparse {
        let mut names = index.spec().key.iter().flatten().enumerate();
        return names.any(|(position, (name, _))| {
            let has_arrays = index.multikey & (1 << position) != 0;
            let refuses_missing = |whole: &WholeComparison| !has_arrays && !whole.accepts(None);
            conditions.predicates(name.as_str()).any(needs_value)
                || conditions.whole_comparisons(name.as_str()).any(refuses_missing)
        });
    }
    true
}

/// Returns whether a predicate matches no document without the field.
fn needs_value(predicate: &Predicate) -> bool {
    let is_value = |value: RawBsonRef<'_>| !matches!(value, RawBsonRef::Null | RawBsonRef::Undefined);
    match predicate {
        // MinKey and MaxKey compare with missing fields, too.
        Predicate::Compare(Comparison::Equal, operand) => is_value(operand.value()),
        Predicate::Compare(_, operand) => {
            is_value(operand.value()) && !matches!(operand.value(), RawBsonRef::MinKey | RawBsonRef::MaxKey)
        }
        // A regular expression matches only values.
        Predicate::In(choices) => choices.values().iter().all(|choice| is_value(choice.value())),
        Predicate::Exists | Predicate::Regex(_) => true,
        _ => false,
    }
}

/// Returns whether every document that fulfils the conditions matches `partial`. `false` if this is not certain.
fn implies(conditions: &NecessaryConditions<'_>, partial: &Filter) -> bool {
    let mut wanted = 0;
    let implied = partial.conjuncts().all(|field| {
        wanted += 1;
        conditions
            .predicates(field.path().as_str())
            .any(|given| predicate_implies(given, field.predicate(), partial.collation()))
    });
    // Conditions that are no conjuncts (`$or`, a negation) are not analysed.
    implied && wanted == leaves(partial.root())
}

/// Returns the number of conditions in a tree of `$and`; any other node counts as more than all conjuncts.
fn leaves(node: &handfast_mql::filter::Node) -> usize {
    use handfast_mql::filter::Node;
    match node {
        Node::And(all) => all.iter().map(leaves).sum(),
        Node::Or(one) if one.len() == 1 => leaves(&one[0]),
        Node::Field(_) => 1,
        _ => usize::MAX / 1024,
    }
}

fn predicate_implies(given: &Predicate, wanted: &Predicate, collation: Option<&Collation>) -> bool {
    match wanted {
        Predicate::Exists => needs_value(given),
        Predicate::Compare(wanted, bound) => match given {
            Predicate::Compare(given, value) => {
                comparison_implies(*given, value.value(), *wanted, bound.value(), collation)
            }
            Predicate::In(choices) if choices.patterns().is_empty() => choices
                .values()
                .iter()
                .all(|choice| comparison_implies(Comparison::Equal, choice.value(), *wanted, bound.value(), collation)),
            _ => false,
        },
        Predicate::In(wanted) if wanted.patterns().is_empty() => {
            let among = |value: RawBsonRef<'_>| {
                wanted.values().iter().any(|choice| order::compare_under(choice.value(), value, collation).is_eq())
            };
            match given {
                Predicate::Compare(Comparison::Equal, value) => among(value.value()),
                Predicate::In(given) if given.patterns().is_empty() => {
                    given.values().iter().all(|choice| among(choice.value()))
                }
                _ => false,
            }
        }
        _ => false,
    }
}

fn comparison_implies(
    given: Comparison,
    value: RawBsonRef<'_>,
    wanted: Comparison,
    bound: RawBsonRef<'_>,
    collation: Option<&Collation>,
) -> bool {
    use Comparison as C;
    // Arrays compare whole or by element, and null matches missing fields: these imply only equal values.
    let plain = |value: RawBsonRef<'_>| {
        !matches!(
            value,
            RawBsonRef::Array(_) | RawBsonRef::Null | RawBsonRef::Undefined | RawBsonRef::MinKey | RawBsonRef::MaxKey
        ) && !matches!(value, RawBsonRef::Double(number) if number.is_nan())
            && !matches!(value, RawBsonRef::Decimal128(number) if number.to_string().contains("NaN"))
    };
    let ordering = order::compare_under(value, bound, collation);
    if given == C::Equal && wanted == C::Equal {
        return ordering.is_eq();
    }
    if !plain(value) || !plain(bound) || order::type_rank(value) != order::type_rank(bound) {
        return false;
    }
    match wanted {
        C::Equal => false,
        C::Greater => match given {
            C::Equal | C::GreaterOrEqual => ordering.is_gt(),
            C::Greater => ordering.is_ge(),
            _ => false,
        },
        C::GreaterOrEqual => matches!(given, C::Equal | C::Greater | C::GreaterOrEqual) && ordering.is_ge(),
        C::Less => match given {
            C::Equal | C::LessOrEqual => ordering.is_lt(),
            C::Less => ordering.is_le(),
            _ => false,
        },
        C::LessOrEqual => matches!(given, C::Equal | C::Less | C::LessOrEqual) && ordering.is_le(),
    }
}

fn hinted(collection: &Collection, query: &Query<'_>, find: &Find, hint: &Hint) -> StoreResult<Plan> {
    let (conditions, sort) = (&query.of_bytes.conditions, &query.of_bytes.sort);
    if let Hint::Key(key) = hint
        && let Some(direction) = natural(key)
    {
        if find.min.is_some() || find.max.is_some() {
            return Err(bad_hint("min and max need the hint of an index, not $natural"));
        }
        let sorted = by_id(sort) == Some(direction);
        return Ok(Plan { sorted, ..Plan::new(Access::everything(direction)) });
    }
    if names_id(hint) {
        let id = Index::compile(IndexSpec::id())?;
        let range = min_max(&id, find)?;
        return Ok(match range {
            Some(range) => {
                let direction = by_id(sort);
                let access = Access::Documents { range, direction: direction.unwrap_or(Direction::Forward) };
                Plan { sorted: direction.is_some(), ..Plan::new(access) }
            }
            None => match points(conditions) {
                Some(keys) => Plan { sorted: keys.len() < 2, ..Plan::new(Access::Points(keys)) },
                None => documents(conditions, sort),
            },
        });
    }
    let named = |index: &&Arc<CollectionIndex>| match hint {
        Hint::Name(name) => index.spec().name == *name,
        Hint::Key(key) => same_key(&index.spec().key, key),
    };
    let usable = |index: &&Arc<CollectionIndex>| index.complete && !index.spec().hidden;
    let index = collection.indexes.iter().filter(usable).find(named);
    let index = index.ok_or_else(|| bad_hint("hint provided does not correspond to an existing index"))?;
    let usable = query.under(index.index.collation());
    let (conditions, sort) = (&usable.conditions, &usable.sort);
    if index.index.partial().is_some() && !covers(index, conditions) {
        return Err(bad_hint("the hinted partial index does not hold all documents that the query asks for"));
    }
    let mut plan = with_index(index, conditions, sort).plan;
    if let Some(range) = min_max(&index.index, find)? {
        let direction =
            if let Access::Index { direction, .. } = &plan.access { *direction } else { Direction::Forward };
        plan.access = Access::Index { index: index.clone(), ranges: vec![range], direction };
    }
    Ok(plan)
}

fn bad_hint(text: &str) -> StoreError {
    StoreError::command(Code::BadValue, format!("error processing query: planner returned error: {text}"))
}

fn names_id(hint: &Hint) -> bool {
    match hint {
        Hint::Name(name) => name == handfast_store::index::ID_INDEX_NAME,
        Hint::Key(key) => same_key(&IndexSpec::id().key, key),
    }
}

fn natural(key: &RawDocument) -> Option<Direction> {
    let (name, value) = key.iter().next()?.ok()?;
    let negative = match value {
        RawBsonRef::Int32(number) => number < 0,
        RawBsonRef::Int64(number) => number < 0,
        RawBsonRef::Double(number) => number < 0.0,
        _ => return None,
    };
    (name.as_str() == "$natural").then_some(if negative { Direction::Backward } else { Direction::Forward })
}

fn min_max(index: &Index, find: &Find) -> StoreResult<Option<Range>> {
    if find.min.is_none() && find.max.is_none() {
        return Ok(None);
    }
    let bound = |bound: &Option<bson::RawDocumentBuf>| bound.as_ref().map(|bound| index.bound(bound)).transpose();
    let (min, max) = (bound(&find.min)?, bound(&find.max)?);
    if let (Some(min), Some(max)) = (&min, &max)
        && min >= max
    {
        return Err(StoreError::command(Code(51175), "min must be less than max"));
    }
    Ok(Some((min.map_or(Bound::Unbounded, Bound::Included), max.map_or(Bound::Unbounded, Bound::Excluded))))
}

#[cfg(test)]
mod tests;
