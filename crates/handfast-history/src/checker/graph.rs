//! A graph of transactions in one array of edges, with searches for components and cycles that do not recurse.

use std::collections::{HashMap, VecDeque};

/// A write dependency: the target wrote the next version.
pub(super) const WRITE: u8 = 1;
/// A read dependency: the target read the version.
pub(super) const READ: u8 = 2;
/// An antidependency: the target overwrote the version that was read.
pub(super) const ANTI: u8 = 4;
/// Session or real-time order.
pub(super) const ORDER: u8 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) label: u8,
    pub(super) key: u32,
}

#[derive(Debug)]
pub(super) struct Graph {
    /// Sorted by origin; the edges of node `n` are `starts[n]..starts[n + 1]`.
    edges: Vec<Edge>,
    starts: Vec<usize>,
}

/// A part of a graph in which cycles are searched.
///
/// An alternating view has two vertices for each node: one reached by an `ANTI` edge, one reached by other edges. The first
/// has no outgoing `ANTI` edges, so the cycles of the view are the graph's closed walks without two `ANTI` edges in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'g> {
    pub(super) graph: &'g Graph,
    /// The labels of the edges in the view.
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

    /// Returns whether the vertex is the one reached by an `ANTI` edge.
    pub(super) fn is_after_anti(&self, vertex: usize) -> bool {
        self.is_alternating && vertex & 1 == 1
    }

    fn edges_of(&self, vertex: usize) -> &[Edge] {
        self.graph.edges_of(self.node(vertex))
    }

    /// Returns the target of an edge from a vertex, if the edge is in the view.
    fn follow(&self, vertex: usize, edge: &Edge) -> Option<usize> {
        let is_anti = edge.label == ANTI;
        if edge.label & self.labels == 0 || (is_anti && self.is_after_anti(vertex)) {
            return None;
        }
        Some(if self.is_alternating { (edge.to as usize) << 1 | usize::from(is_anti) } else { edge.to as usize })
    }

    /// Returns the strongly connected components of more than one vertex (Tarjan, 1972, with an explicit stack).
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
            while let Some((vertex, next_edge)) = calls.pop() {
                if next_edge == 0 {
                    (index[vertex], low[vertex]) = (next, next);
                    next += 1;
                    open.push(vertex);
                    is_open[vertex] = true;
                }
                let edges = self.edges_of(vertex);
                let mut descended = false;
                // The edge of the finished descent is visited again, as its target's lowest index is now known.
                for (number, edge) in edges.iter().enumerate().skip(next_edge.saturating_sub(1)) {
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
                let start = open.iter().rposition(|member| *member == vertex).unwrap_or(0);
                let component = open.split_off(start);
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

    /// Returns the edges of a shortest cycle through a vertex among these members.
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
