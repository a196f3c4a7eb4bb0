//! Transactions that cannot be put in an order.
//!
//! Layer by layer, the worst first; each component of a layer's view is a reason, told by one short cycle in it. Layers
//! with the order of transactions come last, and only if the data alone condemn nobody: what they would add is then
//! mostly the same story told a longer way.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::dependencies::Dependencies;
use super::graph::{ANTI, Edge, ORDER, READ, View, WRITE};
use super::observed::Observed;
use crate::event::{Expectation, Isolation, Order};
use crate::report::{Cycle, CycleOrder, Findings, Kind};

/// Vertices of a component that a short cycle is looked for from: the best of so many is good enough to be read.
const STARTS_MAX: usize = 64;
/// Vertices looked at in all those searches together, so that a component of a whole history takes seconds too.
const VISITS_MAX: usize = 1_000_000;
/// Transactions of a cycle, and reasons, that are written out. Nobody reads more; their numbers are all there.
const TOLD_MAX: usize = 16;
/// Components of a layer that are told about; of a store that is broken there may be thousands.
const COMPONENTS_MAX: usize = 64;

pub(super) fn find(
    observed: &Observed,
    dependencies: &Dependencies,
    expectation: Expectation,
    findings: &mut Findings,
) {
    let found_in_data = find_in(observed, dependencies, expectation, 0, findings);
    if !found_in_data && expectation.order != Order::None {
        find_in(observed, dependencies, expectation, ORDER, findings);
    }
}

/// Looks at the layers with these labels besides. Says whether there was anything.
fn find_in(
    observed: &Observed,
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
    let mut told: HashSet<BTreeSet<u32>> = HashSet::new();
    // Nodes of components that a layer before has told about: whatever else goes through them is no news.
    let mut condemned: HashSet<usize> = HashSet::new();
    for (labels, is_alternating) in layers {
        let view = View { graph, labels, is_alternating };
        let mut fresh = Vec::new();
        for component in view.components().into_iter().take(COMPONENTS_MAX) {
            let nodes = component.iter().map(|vertex| view.node(*vertex));
            let is_last_layer = labels & ANTI != 0 && !is_alternating;
            if is_last_layer && nodes.clone().any(|node| condemned.contains(&node)) {
                continue;
            }
            let Some(cycle) = shortest(&view, dependencies, &component) else { continue };
            fresh.extend(nodes);
            let members: BTreeSet<u32> = cycle.iter().map(|edge| edge.from).collect();
            if told.insert(members) {
                tell(observed, dependencies, expectation.order, &cycle, findings);
            }
        }
        condemned.extend(fresh);
    }
    !condemned.is_empty()
}

/// The cycle of a component that is best to read: few `rw`, few transactions.
fn shortest(view: &View<'_>, dependencies: &Dependencies, component: &[usize]) -> Option<Vec<Edge>> {
    // In an alternating view the other cycles have been told about by the layers before.
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

/// The cycle with one edge from transaction to transaction where there was a walk through time.
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

fn tell(observed: &Observed, dependencies: &Dependencies, order: Order, cycle: &[Edge], findings: &mut Findings) {
    let numbers: Vec<u32> = cycle.iter().filter_map(|edge| dependencies.transaction(edge.from)).collect();
    let labels = numbers.iter().map(|number| observed.transactions[*number as usize].label).collect();
    let with_keys = cycle.iter().filter(|edge| edge.label != ORDER);
    let keys: BTreeSet<u32> = with_keys.map(|edge| edge.key).collect();
    let keys = keys.into_iter().map(|key| observed.key_names.name(key).clone()).collect();
    let needs_order = cycle.iter().any(|edge| edge.label == ORDER);
    let needed = if needs_order { CycleOrder::from(order) } else { CycleOrder::Data };
    findings.add(Kind::Cycle(shape(cycle), needed), labels, keys, || {
        let mut lines = vec![format!("{} transactions cannot be put in an order", numbers.len())];
        lines.extend(numbers.iter().take(TOLD_MAX).map(|number| format!("  {}", observed.describe(*number))));
        lines.extend(
            cycle.iter().take(TOLD_MAX).map(|edge| format!("  {}", reason(observed, dependencies, order, edge))),
        );
        if cycle.len() > TOLD_MAX {
            lines.push(format!("  and so on, {} more", cycle.len() - TOLD_MAX));
        }
        lines.join("\n")
    });
}

fn shape(cycle: &[Edge]) -> Cycle {
    let has = |label: u8| cycle.iter().any(|edge| edge.label == label);
    let antis = cycle.iter().filter(|edge| edge.label == ANTI).count();
    let is_adjacent = (0..cycle.len()).any(|place| {
        let next = &cycle[(place + 1) % cycle.len()];
        cycle[place].label == ANTI && next.label == ANTI
    });
    match antis {
        0 if has(READ) => Cycle::Information,
        0 => Cycle::WritesOnly,
        1 => Cycle::OneAntidependency,
        _ if is_adjacent => Cycle::Adjacent,
        _ => Cycle::Nonadjacent,
    }
}

fn reason(observed: &Observed, dependencies: &Dependencies, order: Order, edge: &Edge) -> String {
    let title = |node: u32| dependencies.transaction(node).map(|number| observed.title(number)).unwrap_or_default();
    let (from, to) = (title(edge.from), title(edge.to));
    let why = match edge.label {
        ORDER if order == Order::Session => format!("{to} came after {from} in the same process"),
        ORDER => format!("{from} had ended when {to} began"),
        label => {
            let key = observed.key_names.name(edge.key);
            match label {
                WRITE => format!("{to} wrote the version of key {key} after {from}'s"),
                READ => format!("{to} read what {from} wrote to key {key}"),
                _ => format!("{from} read key {key} as it was before {to} wrote it"),
            }
        }
    };
    format!("{from} before {to}: {why}")
}
