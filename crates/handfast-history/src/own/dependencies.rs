//! Which transaction has to be before which.
//!
//! | edge | from | to |
//! | --- | --- | --- |
//! | `ww` | who wrote a version | who wrote the next one |
//! | `wr` | who wrote a version | who read it |
//! | `rw` | who read a version | who wrote the next one |
//! | order | who ended | who began after that, in the same session or in the world |
//!
//! The next version of a list is the next element of its longest read; an acknowledged append that nobody saw comes
//! after all of them. Of a register it is what was written by whoever had read the version, because under snapshot
//! isolation nobody can have come between the two; and before everything there was nothing.
//!
//! The order of the world would be an edge between almost any two transactions. Instead time is a chain of further nodes,
//! one for each end: a transaction leads to its end, each end to the next one, the last end before a beginning to whoever
//! began.

use std::collections::HashMap;

use super::direct::for_each_write;
use super::graph::{ANTI, Edge, Graph, ORDER, READ, WRITE};
use super::observed::{NONE, Observed, Outcome, What};
use crate::event::Order;

/// Edges from readers of a register that held nothing yet to writers who had not read it: each to each, so that their
/// number is bounded. Beyond, dependencies are left out and counted: an anomaly may be missed, none is invented.
pub(super) const FIRST_WRITE_EDGES_MAX: usize = 2_000_000;

/// The graph, and what its nodes are.
#[derive(Debug)]
pub(super) struct Dependencies {
    pub(super) graph: Graph,
    /// The transaction of each node; nodes beyond are moments.
    pub(super) transactions: Vec<u32>,
    pub(super) count: u64,
    pub(super) left_out: u64,
}

struct Builder<'o> {
    observed: &'o Observed,
    committed: &'o [bool],
    nodes: Vec<u32>,
    edges: Vec<Edge>,
    left_out: u64,
}

impl Dependencies {
    pub(super) fn of(observed: &Observed, committed: &[bool], order: Order) -> Self {
        let mut transactions = Vec::new();
        let mut nodes = vec![NONE; committed.len()];
        for (number, _) in (0u32..).zip(committed).filter(|(_, is_committed)| **is_committed) {
            nodes[number as usize] = u32::try_from(transactions.len()).unwrap_or(NONE);
            transactions.push(number);
        }
        let mut builder = Builder { observed, committed, nodes, edges: Vec::new(), left_out: 0 };
        if observed.is_lists() {
            builder.lists();
        } else {
            builder.registers();
        }
        let count = builder.edges.len() as u64;
        let moments = match order {
            Order::None => 0,
            Order::Session => builder.sessions(),
            Order::RealTime => builder.time(&transactions),
        };
        let graph = Graph::new(transactions.len() + moments, builder.edges);
        Dependencies { graph, transactions, count, left_out: builder.left_out }
    }

    /// The transaction of a node, unless it is a moment.
    pub(super) fn transaction(&self, node: u32) -> Option<u32> {
        self.transactions.get(node as usize).copied()
    }
}

impl Builder<'_> {
    /// An edge between transactions, if both have committed.
    fn add(&mut self, from: u32, to: u32, label: u8, key: u32) {
        let node = |transaction: u32| self.nodes.get(transaction as usize).copied().filter(|node| *node != NONE);
        if let (Some(from), Some(to)) = (node(from), node(to))
            && from != to
        {
            self.edges.push(Edge { from, to, label, key });
        }
    }

    fn lists(&mut self) {
        let observed = self.observed;
        // The next version of each key's last one, if it was written and not seen.
        let mut unseen: HashMap<u32, Vec<u32>> = HashMap::new();
        for (key, state) in (0u32..).zip(&observed.keys) {
            for pair in state.order.windows(2) {
                if let (Some(one), Some(next)) = (observed.writer(key, pair[0]), observed.writer(key, pair[1])) {
                    self.add(one, next, WRITE, key);
                }
            }
        }
        for number in 0..u32::try_from(observed.transactions.len()).unwrap_or(NONE) {
            for operation in observed.operations_of(number) {
                let is_unseen = operation.what == What::Append
                    && self.committed[number as usize]
                    && observed.written.get(&(operation.key, operation.value)).is_some_and(|w| w.position == NONE);
                if is_unseen {
                    unseen.entry(operation.key).or_default().push(number);
                    let last = observed.keys[operation.key as usize].order.last();
                    if let Some(writer) = last.and_then(|last| observed.writer(operation.key, *last)) {
                        self.add(writer, number, WRITE, operation.key);
                    }
                }
            }
        }
        for number in 0..u32::try_from(observed.transactions.len()).unwrap_or(NONE) {
            for operation in observed.operations_of(number).iter().filter(|operation| operation.what == What::Read) {
                let key = operation.key;
                let last = observed.value_of_version(key, operation.value);
                if let Some(writer) = last.and_then(|last| observed.writer(key, last)) {
                    self.add(writer, number, READ, key);
                }
                match observed.keys[key as usize].order.get(operation.value as usize) {
                    Some(next) => {
                        if let Some(writer) = observed.writer(key, *next) {
                            self.add(number, writer, ANTI, key);
                        }
                    }
                    None => self.first_writes(&[number], unseen.get(&key).map_or(&[], Vec::as_slice), key),
                }
            }
        }
    }

    fn registers(&mut self) {
        let (observed, committed) = (self.observed, self.committed);
        // Of each version who wrote over it, having read it; of nothing, whoever had not read before.
        let mut next: HashMap<(u32, u32), Vec<u32>> = HashMap::new();
        for_each_write(observed, committed, |transaction, key, _, read| {
            next.entry((key, read.unwrap_or(NONE))).or_default().push(transaction);
        });
        let mut readers: HashMap<(u32, u32), Vec<u32>> = HashMap::new();
        for number in 0..u32::try_from(observed.transactions.len()).unwrap_or(NONE) {
            for operation in observed.operations_of(number).iter().filter(|operation| operation.what == What::Read) {
                readers.entry((operation.key, operation.value)).or_default().push(number);
                if let Some(writer) = observed.writer(operation.key, operation.value) {
                    self.add(writer, number, READ, operation.key);
                }
            }
        }
        for ((key, version), writers) in &next {
            if let Some(before) = observed.writer(*key, *version) {
                for writer in writers {
                    self.add(before, *writer, WRITE, *key);
                }
            }
            let readers = readers.get(&(*key, *version)).map_or(&[][..], Vec::as_slice);
            self.first_writes(readers, writers, *key);
        }
    }

    /// From each reader to each writer of what came next: one of a kind unless something is wrong or it was the first.
    fn first_writes(&mut self, readers: &[u32], writers: &[u32], key: u32) {
        for reader in readers {
            for writer in writers {
                if self.edges.len() > self.observed.operations.len() * 4 + FIRST_WRITE_EDGES_MAX {
                    self.left_out += 1;
                } else {
                    self.add(*reader, *writer, ANTI, key);
                }
            }
        }
    }

    /// Of each process, each transaction to the next one. It needs no further nodes.
    fn sessions(&mut self) -> usize {
        let mut last: HashMap<i64, u32> = HashMap::new();
        for (number, transaction) in (0u32..).zip(&self.observed.transactions) {
            if transaction.outcome == Outcome::Committed
                && let Some(before) = last.insert(transaction.process, number)
            {
                self.add(before, number, ORDER, NONE);
            }
        }
        0
    }

    /// The chain of moments; returns their number.
    fn time(&mut self, transactions: &[u32]) -> usize {
        let ending = |number: &u32| self.observed.transactions[*number as usize].completed;
        let mut ends: Vec<(u32, u32)> = transactions
            .iter()
            .filter(|number| self.observed.transactions[**number as usize].outcome == Outcome::Committed)
            .map(|number| (ending(number), *number))
            .collect();
        ends.sort_unstable();
        let moment = |place: usize| u32::try_from(transactions.len() + place).unwrap_or(NONE);
        let edge = |from: u32, to: u32| Edge { from, to, label: ORDER, key: NONE };
        for (place, (_, number)) in ends.iter().enumerate() {
            self.edges.push(edge(self.nodes[*number as usize], moment(place)));
            if place > 0 {
                self.edges.push(edge(moment(place - 1), moment(place)));
            }
        }
        for (node, number) in (0u32..).zip(transactions) {
            let begun = self.observed.transactions[*number as usize].invoked;
            if let Some(place) = ends.partition_point(|(end, _)| *end < begun).checked_sub(1) {
                self.edges.push(edge(moment(place), node));
            }
        }
        ends.len()
    }
}
