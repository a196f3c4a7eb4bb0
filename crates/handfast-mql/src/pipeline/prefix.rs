//! The first stages of a pipeline, which a find can replace.

use super::Stage;
use crate::{filter::Filter, sort::Sort};

/// The leading `$match` stages, `$sort`, `$skip` and `$limit` of a pipeline, as far as they stand in an order that one
/// find means: filter, then sort, then skip, then limit.
///
/// A caller lets its store run them and continues with the stages from [`Prefix::stages`]; or it uses only the filters, and continues
/// from [`Prefix::filter_stages`].
#[derive(Debug)]
pub struct Prefix<'p> {
    /// The filters, all of which have to match.
    pub filters: Vec<&'p Filter>,
    /// The order.
    pub sort: Option<&'p Sort>,
    /// The number of documents to leave out.
    pub skip: u64,
    /// The largest number of documents after the skipped ones.
    pub limit: Option<u64>,
    /// The number of stages in the prefix.
    pub stages: usize,
    /// The number of stages that the filters come from.
    pub filter_stages: usize,
}

pub(super) fn of(stages: &[Stage]) -> Prefix<'_> {
    let mut prefix = Prefix { filters: Vec::new(), sort: None, skip: 0, limit: None, stages: 0, filter_stages: 0 };
    for stage in stages {
        match stage {
            Stage::Match(filter) if prefix.sort.is_none() && prefix.is_unbounded() => {
                prefix.filters.push(filter);
                prefix.filter_stages += 1;
            }
            Stage::Sort(sort) if prefix.sort.is_none() && prefix.is_unbounded() => prefix.sort = Some(sort.sort()),
            Stage::Skip(skip) if prefix.limit.is_none() => prefix.skip = prefix.skip.saturating_add(*skip),
            Stage::Limit(limit) => {
                prefix.limit = Some(prefix.limit.map_or(*limit, |known| known.min(*limit)));
            }
            _ => break,
        }
        prefix.stages += 1;
    }
    prefix
}

impl Prefix<'_> {
    fn is_unbounded(&self) -> bool {
        self.skip == 0 && self.limit.is_none()
    }
}
