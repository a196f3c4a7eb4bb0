//! Finds transactions that cannot be put in an order.
//!
//! The search goes through the graph layer by layer, the worst kind of cycle first, and reports one short cycle for each
//! strongly connected component of a layer. Layers with session or real-time order come last, and only if reads and writes
//! alone show no cycle: they would mostly report the same cycles again.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::dependencies::Dependencies;
use super::graph::{ANTI, Edge, ORDER, READ, View, WRITE};
use super::indexed::IndexedHistory;
use crate::event::{Expectation, Isolation, Order};
use crate::report::{AnomalyKind, Cycle, CycleOrder, Findings};

/// The number of vertices in a component from which a short cycle is searched; the shortest of 64 cycles is readable.
const STARTS_MAX: usize = 64;
/// The number of vertices that these searches may visit, so that a component as large as the history takes seconds.
const VISITS_MAX: usize = 1_000_000;
/// The number of transactions and reasons of a cycle that an explanation lists. The anomaly has the numbers of all.
const LISTED_MAX: usize = 16;
/// The number of components of a layer that are reported; a broken store may have thousands.
const COMPONENTS_MAX: usize = 64;

pub(super) fn find(
    history: &IndexedHistory,
    dependencies: &Dependencies,
    expectation: Expectation,
    findings: &mut Findings,
) {
    let found_in_data = find_in(history, dependencies, expectation, 0, findings);
    if !found_in_data && expectation.order != Order::None {
        find_in(history, dependencies, expectation, ORDER, findings);
    }
}

/// Searches the layers with these further labels. Returns whether there was a cycle.
fn find_in(
    history: &IndexedHistory,
    dependencies: &Dependencies,
    expectation: Expectation,
    besides: u8,
    findings: &mut Findings,
) -> bool {
    let graph = &dependencies.graph;
    let data = WRITE | READ | besides;
    let mut layers = vec![(WRITE | besides, false), (data, false), (data | ANTI, true)];
    if expectation.isolation == Isolation::Serializable {
        layers.push((data | ANTI, false));
    }
    let mut reported: HashSet<BTreeSet<u32>> = HashSet::new();
    // Nodes in components that an earlier layer has reported.
    let mut reported_nodes: HashSet<usize> = HashSet::new();
    for (labels, is_alternating) in layers {
        let view = View { graph, labels, is_alternating };
        let mut fresh = Vec::new();
        for component in view.components().into_iter().take(COMPONENTS_MAX) {
            let nodes = component.iter().map(|vertex| view.node(*vertex));
            let is_last_layer = labels & ANTI != 0 && !is_alternating;
            if is_last_layer && nodes.clone().any(|node| reported_nodes.contains(&node)) {
                continue;
            }
            let Some(cycle) = shortest(&view, dependencies, &component) else { continue };
            fresh.extend(nodes);
            let members: BTreeSet<u32> = cycle.iter().map(|edge| edge.from).collect();
            if reported.insert(members) {
                report_cycle(history, dependencies, expectation.order, &cycle, findings);
            }
        }
        reported_nodes.extend(fresh);
    }
    !reported_nodes.is_empty()
}

/// Returns the most readable cycle of a component: it has few `rw` edges and few transactions.
fn shortest(view: &View<'_>, dependencies: &Dependencies, component: &[usize]) -> Option<Vec<Edge>> {
    // Earlier layers have reported the other cycles of an alternating view.
    let starts: Vec<usize> =
        component.iter().copied().filter(|vertex| !view.is_alternating || view.is_after_anti(*vertex)).collect();
    let members: HashMap<usize, ()> = component.iter().map(|vertex| (*vertex, ())).collect();
    let searches = (VISITS_MAX / component.len().max(1)).clamp(1, STARTS_MAX);
    let stride = starts.len().div_ceil(searches).max(1);
    let cycles = starts.iter().step_by(stride).filter_map(|start| view.cycle(*start, &members));
    cycles.map(|cycle| without_moments(&cycle, dependencies)).min_by_key(|cycle| {
        let antis = cycle.iter().filter(|edge| edge.label == ANTI).count();
        (antis, cycle.len())
    })
}

/// Replaces each path through moments by one edge between transactions.
fn without_moments(cycle: &[Edge], dependencies: &Dependencies) -> Vec<Edge> {
    let is_transaction = |edge: &Edge| dependencies.transaction(edge.from).is_some();
    let first = cycle.iter().position(is_transaction).unwrap_or(0);
    let mut short: Vec<Edge> = Vec::new();
    for edge in cycle[first..].iter().chain(&cycle[..first]) {
        match short.last_mut() {
            Some(last) if !is_transaction(edge) => last.to = edge.to,
            _ => short.push(*edge),
        }
    }
    short
}

fn report_cycle(
    history: &IndexedHistory,
    dependencies: &Dependencies,
    order: Order,
    cycle: &[Edge],
    findings: &mut Findings,
) {
    let numbers: Vec<u32> = cycle.iter().filter_map(|edge| dependencies.transaction(edge.from)).collect();
    let labels = numbers.iter().map(|number| history.transactions[*number as usize].label).collect();
    let with_keys = cycle.iter().filter(|edge| edge.label != ORDER);
    let keys: BTreeSet<u32> = with_keys.map(|edge| edge.key).collect();
    let keys = keys.into_iter().map(|key| history.key_names.name(key).clone()).collect();
    let needs_order = cycle.iter().any(|edge| edge.label == ORDER);
    let needed = if needs_order { CycleOrder::from(order) } else { CycleOrder::Data };
    findings.add(AnomalyKind::Cycle(shape(cycle), needed), labels, keys, || {
        let mut lines = vec![format!("{} transactions cannot be put in an order", numbers.len())];
        lines.extend(numbers.iter().take(LISTED_MAX).map(|number| format!("  {}", history.describe(*number))));
        lines.extend(
            cycle.iter().take(LISTED_MAX).map(|edge| format!("  {}", reason(history, dependencies, order, edge))),
        );
        if cycle.len() > LISTED_MAX {
            lines.push(format!("  and so on, {} more", cycle.len() - LISTED_MAX));
        }
        lines.join("\n")
    });
}

fn shape(cycle: &[Edge]) -> Cycle {
    let has = |label: u8| cycle.iter().any(|edge| edge.label == label);
    let antis = cycle.iter().filter(|edge| edge.label == ANTI).count();
    let is_adjacent = (0..cycle.len()).any(|position| {
        let next = &cycle[(position + 1) % cycle.len()];
        cycle[position].label == ANTI && next.label == ANTI
    });
    match antis {
        0 if has(READ) => Cycle::Information,
        0 => Cycle::WritesOnly,
        1 => Cycle::OneAntidependency,
        _ if is_adjacent => Cycle::Adjacent,
        _ => Cycle::Nonadjacent,
    }
}

fn reason(history: &IndexedHistory, dependencies: &Dependencies, order: Order, edge: &Edge) -> String {
    let title = |node: u32| dependencies.transaction(node).map(|number| history.title(number)).unwrap_or_default();
    let (from, to) = (title(edge.from), title(edge.to));
    let why = match edge.label {
        ORDER if order == Order::Session => format!("{to} came after {from} in the same process"),
        ORDER => format!("{from} had ended when {to} began"),
        label => {
            let key = history.key_names.name(edge.key);
            match label {
                WRITE => format!("{to} wrote the version of key {key} after {from}'s"),
                READ => format!("{to} read what {from} wrote to key {key}"),
                _ => format!("{from} read key {key} as it was before {to} wrote it"),
            }
        }
    };
    format!("{from} before {to}: {why}")
}
