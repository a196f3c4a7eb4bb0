//! A graph of many transactions: edges in one array, components and cycles without recursion.

use std::collections::{HashMap, VecDeque};

/// The write of the next version.
pub(super) const WRITE: u8 = 1;
/// A read of what the other wrote.
pub(super) const READ: u8 = 2;
/// A write of what the other had read.
pub(super) const ANTI: u8 = 4;
/// One after the other, in a session or in the world.
pub(super) const ORDER: u8 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) label: u8,
    /// The key that it is about.
    pub(super) key: u32,
}

#[derive(Debug)]
pub(super) struct Graph {
    /// Sorted by where they begin; those of node `n` are `starts[n]..starts[n + 1]`.
    edges: Vec<Edge>,
    starts: Vec<usize>,
}

/// The part of a graph in which a cycle is looked for.
///
/// In an alternating view each node is there twice: as reached by an `ANTI` edge or by another. From the first, `ANTI`
/// edges do not lead on; so its cycles are the graph's closed walks without two `ANTI` edges in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'g> {
    pub(super) graph: &'g Graph,
    /// Labels of edges that are looked at.
    pub(super) labels: u8,
    pub(super) is_alternating: bool,
}

impl Graph {
    pub(super) fn new(nodes: usize, mut edges: Vec<Edge>) -> Self {
        edges.sort_unstable_by_key(|edge| (edge.from, edge.label, edge.to));
        edges.dedup_by_key(|edge| (edge.from, edge.label, edge.to));
        let mut starts = vec![0; nodes + 1];
        for edge in &edges {
            starts[edge.from as usize + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        Graph { edges, starts }
    }

    fn nodes(&self) -> usize {
        self.starts.len() - 1
    }

    fn edges_of(&self, node: usize) -> &[Edge] {
        &self.edges[self.starts[node]..self.starts[node + 1]]
    }
}

impl View<'_> {
    fn vertices(&self) -> usize {
        self.graph.nodes() << u32::from(self.is_alternating)
    }

    pub(super) fn node(&self, vertex: usize) -> usize {
        vertex >> u32::from(self.is_alternating)
    }

    /// Whether a vertex is one reached by an `ANTI` edge.
    pub(super) fn is_after_anti(&self, vertex: usize) -> bool {
        self.is_alternating && vertex & 1 == 1
    }

    fn edges_of(&self, vertex: usize) -> &[Edge] {
        self.graph.edges_of(self.node(vertex))
    }

    /// Where an edge leads from a vertex, if it is in the view.
    fn follow(&self, vertex: usize, edge: &Edge) -> Option<usize> {
        let is_anti = edge.label == ANTI;
        if edge.label & self.labels == 0 || (is_anti && self.is_after_anti(vertex)) {
            return None;
        }
        Some(if self.is_alternating { (edge.to as usize) << 1 | usize::from(is_anti) } else { edge.to as usize })
    }

    /// The strongly connected components of more than one vertex (Tarjan, 1972, with a stack of its own).
    pub(super) fn components(&self) -> Vec<Vec<usize>> {
        const NEW: u32 = u32::MAX;
        let vertices = self.vertices();
        let (mut index, mut low) = (vec![NEW; vertices], vec![0u32; vertices]);
        let mut is_open = vec![false; vertices];
        let (mut open, mut calls): (Vec<usize>, Vec<(usize, usize)>) = (Vec::new(), Vec::new());
        let mut components = Vec::new();
        let mut next = 0u32;
        for root in 0..vertices {
            if index[root] != NEW {
                continue;
            }
            calls.push((root, 0));
            while let Some((vertex, place)) = calls.pop() {
                if place == 0 {
                    (index[vertex], low[vertex]) = (next, next);
                    next += 1;
                    open.push(vertex);
                    is_open[vertex] = true;
                }
                let edges = self.edges_of(vertex);
                let mut descended = false;
                // An edge that was descended along is looked at once more: the lowest behind it is then known.
                for (number, edge) in edges.iter().enumerate().skip(place.saturating_sub(1)) {
                    let Some(target) = self.follow(vertex, edge) else { continue };
                    if index[target] == NEW {
                        calls.push((vertex, number + 1));
                        calls.push((target, 0));
                        descended = true;
                        break;
                    }
                    if is_open[target] {
                        low[vertex] = low[vertex].min(low[target]);
                    }
                }
                if descended || low[vertex] != index[vertex] {
                    continue;
                }
                let place = open.iter().rposition(|member| *member == vertex).unwrap_or(0);
                let component = open.split_off(place);
                for member in &component {
                    is_open[*member] = false;
                }
                if component.len() > 1 {
                    components.push(component);
                }
            }
        }
        components
    }

    /// A shortest cycle through a vertex among these, by its edges.
    pub(super) fn cycle(&self, start: usize, members: &HashMap<usize, ()>) -> Option<Vec<Edge>> {
        let mut reached: HashMap<usize, (usize, Edge)> = HashMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(vertex) = queue.pop_front() {
            for edge in self.edges_of(vertex) {
                let Some(target) = self.follow(vertex, edge).filter(|target| members.contains_key(target)) else {
                    continue;
                };
                if target == start {
                    let mut cycle = vec![*edge];
                    let mut at = vertex;
                    while let Some((before, edge)) = reached.get(&at).filter(|_| at != start) {
                        cycle.push(*edge);
                        at = *before;
                    }
                    cycle.reverse();
                    return Some(cycle);
                }
                reached.entry(target).or_insert_with(|| {
                    queue.push_back(target);
                    (vertex, *edge)
                });
            }
        }
        None
    }
}
