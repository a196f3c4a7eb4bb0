//! Builds the graph of dependencies between transactions.
//!
//! | edge | from | to |
//! | --- | --- | --- |
//! | `ww` | the writer of a version | the writer of the next version |
//! | `wr` | the writer of a version | a reader of the version |
//! | `rw` | a reader of a version | the writer of the next version |
//! | order | a transaction that ended | one that began after that, in the same session or in real time |
//!
//! The next version of a list is the next element of its longest read; an acknowledged append that no read shows follows
//! all of them. The next version of a register is the one written by a transaction that read the version, because under
//! snapshot isolation no other write can lie between the two; the first version is nothing.
//!
//! Real-time order would need an edge between almost any two transactions. Instead the graph has a chain of further nodes,
//! one moment for each end: an edge leads from a transaction to its end, from each end to the next one, and from the last
//! end before a beginning to the transaction that began.

use std::collections::HashMap;

use super::graph::{ANTI, Edge, Graph, ORDER, READ, WRITE};
use super::indexed::{IndexedHistory, NONE, OperationKind, TransactionOutcome};
use super::non_cyclic::for_each_write;
use crate::event::Order;

/// The number of edges from each reader of a register's first version to each writer that had not read it. Further
/// dependencies are left out and counted: an anomaly may be missed, none is invented.
pub(super) const FIRST_WRITE_EDGES_MAX: usize = 2_000_000;

/// The graph of dependencies and the meaning of its nodes.
#[derive(Debug)]
pub(super) struct Dependencies {
    pub(super) graph: Graph,
    /// The transaction of each node; further nodes are moments.
    pub(super) transactions: Vec<u32>,
    pub(super) count: u64,
    pub(super) left_out: u64,
}

struct Builder<'o> {
    history: &'o IndexedHistory,
    committed: &'o [bool],
    nodes: Vec<u32>,
    edges: Vec<Edge>,
    left_out: u64,
}

impl Dependencies {
    pub(super) fn of(history: &IndexedHistory, committed: &[bool], order: Order) -> Self {
        let mut transactions = Vec::new();
        let mut nodes = vec![NONE; committed.len()];
        for (number, _) in (0u32..).zip(committed).filter(|(_, is_committed)| **is_committed) {
            nodes[number as usize] = u32::try_from(transactions.len()).unwrap_or(NONE);
            transactions.push(number);
        }
        let mut builder = Builder { history, committed, nodes, edges: Vec::new(), left_out: 0 };
        if history.is_lists() {
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

    /// Returns the transaction of a node, or `None` for a moment.
    pub(super) fn transaction(&self, node: u32) -> Option<u32> {
        self.transactions.get(node as usize).copied()
    }
}

impl Builder<'_> {
    /// Adds an edge between transactions if both have committed.
    fn add(&mut self, from: u32, to: u32, label: u8, key: u32) {
        let node = |transaction: u32| self.nodes.get(transaction as usize).copied().filter(|node| *node != NONE);
        if let (Some(from), Some(to)) = (node(from), node(to))
            && from != to
        {
            self.edges.push(Edge { from, to, label, key });
        }
    }

    fn lists(&mut self) {
        let history = self.history;
        // The committed writers of each key whose appends no read shows.
        let mut unseen: HashMap<u32, Vec<u32>> = HashMap::new();
        for (key, state) in (0u32..).zip(&history.keys) {
            for pair in state.order.windows(2) {
                if let (Some(one), Some(next)) = (history.writer(key, pair[0]), history.writer(key, pair[1])) {
                    self.add(one, next, WRITE, key);
                }
            }
        }
        for number in 0..u32::try_from(history.transactions.len()).unwrap_or(NONE) {
            for operation in history.operations_of(number) {
                let is_unseen = operation.kind == OperationKind::Append
                    && self.committed[number as usize]
                    && history.written.get(&(operation.key, operation.value)).is_some_and(|w| w.position == NONE);
                if is_unseen {
                    unseen.entry(operation.key).or_default().push(number);
                    let last = history.keys[operation.key as usize].order.last();
                    if let Some(writer) = last.and_then(|last| history.writer(operation.key, *last)) {
                        self.add(writer, number, WRITE, operation.key);
                    }
                }
            }
        }
        for number in 0..u32::try_from(history.transactions.len()).unwrap_or(NONE) {
            for operation in
                history.operations_of(number).iter().filter(|operation| operation.kind == OperationKind::Read)
            {
                let key = operation.key;
                let last = history.value_of_version(key, operation.value);
                if let Some(writer) = last.and_then(|last| history.writer(key, last)) {
                    self.add(writer, number, READ, key);
                }
                match history.keys[key as usize].order.get(operation.value as usize) {
                    Some(next) => {
                        if let Some(writer) = history.writer(key, *next) {
                            self.add(number, writer, ANTI, key);
                        }
                    }
                    None => self.first_writes(&[number], unseen.get(&key).map_or(&[], Vec::as_slice), key),
                }
            }
        }
    }

    fn registers(&mut self) {
        let (history, committed) = (self.history, self.committed);
        // The transactions that read and overwrote each version; blind writers overwrote nothing.
        let mut next: HashMap<(u32, u32), Vec<u32>> = HashMap::new();
        for_each_write(history, committed, |transaction, key, _, read| {
            next.entry((key, read.unwrap_or(NONE))).or_default().push(transaction);
        });
        let mut readers: HashMap<(u32, u32), Vec<u32>> = HashMap::new();
        for number in 0..u32::try_from(history.transactions.len()).unwrap_or(NONE) {
            for operation in
                history.operations_of(number).iter().filter(|operation| operation.kind == OperationKind::Read)
            {
                readers.entry((operation.key, operation.value)).or_default().push(number);
                if let Some(writer) = history.writer(operation.key, operation.value) {
                    self.add(writer, number, READ, operation.key);
                }
            }
        }
        for ((key, version), writers) in &next {
            if let Some(before) = history.writer(*key, *version) {
                for writer in writers {
                    self.add(before, *writer, WRITE, *key);
                }
            }
            let readers = readers.get(&(*key, *version)).map_or(&[][..], Vec::as_slice);
            self.first_writes(readers, writers, *key);
        }
    }

    /// Adds edges from each reader of a version to each writer of the next one. Both are single, except at the first version
    /// and where there is an anomaly.
    fn first_writes(&mut self, readers: &[u32], writers: &[u32], key: u32) {
        for reader in readers {
            for writer in writers {
                if self.edges.len() > self.history.operations.len() * 4 + FIRST_WRITE_EDGES_MAX {
                    self.left_out += 1;
                } else {
                    self.add(*reader, *writer, ANTI, key);
                }
            }
        }
    }

    /// Adds an edge from each transaction of a process to the next one; returns the number of further nodes, which is 0.
    fn sessions(&mut self) -> usize {
        let mut last: HashMap<i64, u32> = HashMap::new();
        for (number, transaction) in (0u32..).zip(&self.history.transactions) {
            if transaction.outcome == TransactionOutcome::Committed
                && let Some(before) = last.insert(transaction.process, number)
            {
                self.add(before, number, ORDER, NONE);
            }
        }
        0
    }

    /// Adds the chain of moments; returns their number.
    fn time(&mut self, transactions: &[u32]) -> usize {
        let ending = |number: &u32| self.history.transactions[*number as usize].completed;
        let mut ends: Vec<(u32, u32)> = transactions
            .iter()
            .filter(|number| self.history.transactions[**number as usize].outcome == TransactionOutcome::Committed)
            .map(|number| (ending(number), *number))
            .collect();
        ends.sort_unstable();
        let moment = |position: usize| u32::try_from(transactions.len() + position).unwrap_or(NONE);
        let edge = |from: u32, to: u32| Edge { from, to, label: ORDER, key: NONE };
        for (position, (_, number)) in ends.iter().enumerate() {
            self.edges.push(edge(self.nodes[*number as usize], moment(position)));
            if position > 0 {
                self.edges.push(edge(moment(position - 1), moment(position)));
            }
        }
        for (node, number) in (0u32..).zip(transactions) {
            let begun = self.history.transactions[*number as usize].invoked;
            if let Some(position) = ends.partition_point(|(end, _)| *end < begun).checked_sub(1) {
                self.edges.push(edge(moment(position), node));
            }
        }
        ends.len()
    }
}
