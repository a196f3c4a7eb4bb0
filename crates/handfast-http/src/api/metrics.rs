//! The metrics of the server (`GET /metrics`), as Prometheus reads them: those of `serverStatus`, and those of the requests of the API.

use bson::{Bson, Document};

use crate::metrics::{MetricsText, RequestMetrics};

/// A metric whose samples are numbers of `serverStatus`.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    /// The label that tells the samples apart; empty for a single one.
    label: &'static str,
    /// The value of the label, and the path of the number.
    samples: &'static [(&'static str, &'static str)],
}

const GAUGE: &str = "gauge";
const COUNTER: &str = "counter";

const FAMILIES: [Family; 13] = [
    Family {
        name: "uptime_seconds",
        kind: GAUGE,
        help: "Time since the start of the server",
        label: "",
        samples: &[("", "uptime")],
    },
    Family {
        name: "resident_megabytes",
        kind: GAUGE,
        help: "Memory of the process",
        label: "",
        samples: &[("", "mem.resident")],
    },
    Family {
        name: "stage_bytes",
        kind: GAUGE,
        help: "Bytes that sorts, groups and other stages of queries hold, in memory and in temporary files",
        label: "place",
        samples: &[("memory", "handfast.stages.memoryBytes"), ("files", "handfast.stages.fileBytes")],
    },
    Family {
        name: "stage_file_bytes_total",
        kind: COUNTER,
        help: "Bytes that sorts and groups have written to temporary files",
        label: "",
        samples: &[("", "handfast.stages.fileBytesWritten")],
    },
    Family {
        name: "connections",
        kind: GAUGE,
        help: "Connections of drivers: those that are open, and those that may still be opened",
        label: "state",
        samples: &[("open", "connections.current"), ("available", "connections.available")],
    },
    Family {
        name: "connections_total",
        kind: COUNTER,
        help: "Connections that were made, also by the API within the process, were refused because there were too many, or broke",
        label: "event",
        samples: &[
            ("created", "connections.totalCreated"),
            ("refused", "connections.rejected"),
            ("broken", "connections.broken"),
        ],
    },
    Family {
        name: "network_bytes_total",
        kind: COUNTER,
        help: "Bytes of the messages of drivers, and of the replies",
        label: "direction",
        samples: &[("in", "network.bytesIn"), ("out", "network.bytesOut")],
    },
    Family {
        name: "operations_total",
        kind: COUNTER,
        help: "Operations, as MongoDB counts them in opcounters",
        label: "operation",
        samples: &[
            ("insert", "opcounters.insert"),
            ("query", "opcounters.query"),
            ("update", "opcounters.update"),
            ("delete", "opcounters.delete"),
            ("getmore", "opcounters.getmore"),
            ("command", "opcounters.command"),
        ],
    },
    Family {
        name: "transactions",
        kind: GAUGE,
        help: "Open transactions: those that run a statement, and those between two statements",
        label: "state",
        samples: &[("active", "transactions.currentActive"), ("inactive", "transactions.currentInactive")],
    },
    Family {
        name: "snapshots",
        kind: GAUGE,
        help: "Snapshots that are kept for reads",
        label: "",
        samples: &[("", "transactions.currentSnapshots")],
    },
    Family {
        name: "transactions_total",
        kind: COUNTER,
        help: "Transactions that were begun, were committed, were aborted, conflicted with others, or ended with an unknown outcome",
        label: "event",
        samples: &[
            ("started", "transactions.totalStarted"),
            ("committed", "transactions.totalCommitted"),
            ("aborted", "transactions.totalAborted"),
            ("conflicted", "transactions.totalConflicts"),
            ("unknown", "transactions.totalUnknown"),
        ],
    },
    Family {
        name: "cursors",
        kind: GAUGE,
        help: "Open cursors",
        label: "",
        samples: &[("", "metrics.cursor.open.total")],
    },
    Family {
        name: "cursors_total",
        kind: COUNTER,
        help: "Cursors that were opened, or ended because their clients were silent",
        label: "event",
        samples: &[("opened", "metrics.cursor.totalOpened"), ("timed_out", "metrics.cursor.timedOut")],
    },
];

/// Returns the metrics as text. `status` is the reply of `serverStatus`.
pub(super) fn text(status: &Document, requests: &RequestMetrics) -> String {
    let mut server = MetricsText::new("handfast_server");
    for family in &FAMILIES {
        server.family(family.name, family.kind, family.help);
        for (value, path) in family.samples {
            let labels = [(family.label, *value)];
            let labels = if family.label.is_empty() { &[][..] } else { &labels[..] };
            server.sample(family.name, labels, number(status, path));
        }
    }
    put_commands(status, &mut server);
    let mut http = MetricsText::new("handfast_http");
    requests.write(&mut http);
    server.into_string() + &http.into_string()
}

/// Writes the commands that have run.
fn put_commands(status: &Document, text: &mut MetricsText) {
    let commands = status.get_document("metrics").and_then(|metrics| metrics.get_document("commands"));
    let commands: Vec<(&str, &Document)> = commands
        .into_iter()
        .flatten()
        .filter_map(|(name, counts)| Some((name.as_str(), counts.as_document()?)))
        .filter(|(_, counts)| number(counts, "total") > 0.0)
        .collect();
    text.family("commands_total", COUNTER, "Commands that have run, and those of them that failed");
    for (name, counts) in &commands {
        let failed = number(counts, "failed");
        text.sample("commands_total", &[("command", name), ("result", "failed")], failed);
        text.sample("commands_total", &[("command", name), ("result", "succeeded")], number(counts, "total") - failed);
    }
    text.family("command_seconds_total", COUNTER, "Time that the commands took");
    for (name, counts) in &commands {
        text.sample("command_seconds_total", &[("command", name)], number(counts, "micros") / 1e6);
    }
}

/// Returns the number at a path; 0 if there is none.
fn number(document: &Document, path: &str) -> f64 {
    let (parents, name) = path.rsplit_once('.').unwrap_or(("", path));
    let mut parents = parents.split('.').filter(|name| !name.is_empty());
    let parent = parents.try_fold(document, |document, name| document.get_document(name).ok());
    match parent.and_then(|parent| parent.get(name)) {
        Some(Bson::Int32(number)) => f64::from(*number),
        // Greater ones than 2^53 lose digits that nobody looks at.
        #[expect(clippy::cast_precision_loss, reason = "Prometheus keeps numbers as f64")]
        Some(Bson::Int64(number)) => *number as f64,
        Some(Bson::Double(number)) => *number,
        _ => 0.0,
    }
}
