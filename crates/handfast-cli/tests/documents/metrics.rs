//! The metrics that the dashboard and the alerts name, and those that docs/metrics.md describes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};

/// Labels that Prometheus adds, and that of the buckets of a histogram.
const LABELS_OF_PROMETHEUS: [&str; 3] = ["instance", "job", "le"];
/// Labels whose values are names of commands, of operations of the API, and classes of statuses, which other documents have.
const NAMES: [&str; 3] = ["command", "route", "status"];
/// What a histogram is stored as.
const SUFFIXES: [&str; 3] = ["_bucket", "_count", "_sum"];

/// A metric, as its row in the document describes it.
#[derive(Debug)]
struct Metric {
    is_histogram: bool,
    labels: BTreeSet<String>,
}

#[test]
fn dashboard_and_alerts_name_documented_metrics_with_documented_labels() -> Result<()> {
    let root = crate::root();
    let document = std::fs::read_to_string(root.join("docs/metrics.md"))?;
    let metrics = documented(&document);
    ensure!(metrics.len() > 30, "metrics were not found");
    for file in ["packaging/prometheus/alerts.yml", "packaging/grafana/handfast.json"] {
        let text = std::fs::read_to_string(root.join(file))?.replace("\\\"", "\"");
        let wrong = unknown(&text, &metrics, &document);
        ensure!(wrong.is_empty(), "{file}: {}", wrong.join(", "));
        ensure!(text.matches("handfast_").count() > 15, "{file}: metrics were not found");
    }
    Ok(())
}

#[test]
fn each_alert_has_a_section_in_its_guide() -> Result<()> {
    let root = crate::root();
    let rules = std::fs::read_to_string(root.join("packaging/prometheus/alerts.yml"))?;
    let guide = std::fs::read_to_string(root.join("docs/alerts.md"))?;
    let alerts: BTreeSet<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let sections: BTreeSet<&str> = guide.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    ensure!(alerts.len() > 10, "alerts were not found");
    let differing: Vec<_> = alerts.symmetric_difference(&sections).collect();
    ensure!(differing.is_empty(), "in the rules or in docs/alerts.md only: {differing:?}");
    for alert in alerts {
        let (_, rule) = rules.split_once(&format!("- alert: {alert}\n")).context("the rule")?;
        let rule = rule.split("- alert: ").next().unwrap_or(rule);
        let guide = format!("docs/alerts.md#{}", alert.to_lowercase());
        ensure!(rule.contains(&guide), "the rule {alert} does not name {guide}");
    }
    Ok(())
}

/// Returns the metrics of the tables of the document.
fn documented(document: &str) -> BTreeMap<String, Metric> {
    let mut columns: Vec<&str> = Vec::new();
    let mut metrics = BTreeMap::new();
    for line in document.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if cells.first() == Some(&"metric") {
            columns = cells;
            continue;
        }
        let cell = |name: &str| columns.iter().position(|column| *column == name).and_then(|at| cells.get(at));
        let Some(name) = cell("metric").and_then(|name| name.strip_prefix("`handfast_")) else { continue };
        let labels = cell("labels").map(|labels| labels.split('`').skip(1).step_by(2).map(str::to_owned).collect());
        let is_histogram = cell("kind") == Some(&"histogram");
        let metric = Metric { is_histogram, labels: labels.unwrap_or_default() };
        metrics.insert(format!("handfast_{}", name.trim_end_matches('`')), metric);
    }
    metrics
}

/// Returns the metrics, the labels and the values of labels that expressions name and the document does not.
fn unknown(text: &str, metrics: &BTreeMap<String, Metric>, document: &str) -> Vec<String> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut wrong = Vec::new();
    for (at, _) in text.match_indices("handfast_") {
        let rest = text.get(at..).unwrap_or_default();
        let name = rest.split(|c| !is_name(c)).next().unwrap_or_default();
        let base = SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix));
        let histogram = base.and_then(|base| metrics.get(base)).filter(|metric| metric.is_histogram);
        let Some(metric) = histogram.or_else(|| metrics.get(name).filter(|metric| !metric.is_histogram)) else {
            wrong.push(name.to_owned());
            continue;
        };
        let matchers = rest.get(name.len()..).and_then(|rest| rest.strip_prefix('{')?.split('}').next());
        for matcher in matchers.unwrap_or_default().split(',').filter(|matcher| !matcher.trim().is_empty()) {
            let label = matcher.trim().split(|c| !is_name(c)).next().unwrap_or_default();
            if LABELS_OF_PROMETHEUS.contains(&label) {
                continue;
            }
            if !metric.labels.contains(label) {
                wrong.push(format!("{name}{{{label}}}"));
            }
            if NAMES.contains(&label) {
                continue;
            }
            let values = matcher.split('"').nth(1).unwrap_or_default();
            // The others are variables of the dashboard.
            let values = values.split('|').filter(|value| !value.starts_with('$'));
            wrong.extend(values.filter(|value| !document.contains(&format!("`{value}`"))).map(str::to_owned));
        }
    }
    wrong
}

#[test]
fn wrong_names_are_found() {
    let document = "| metric | kind | unit | labels | meaning |\n| --- |\n| `handfast_a_total` | counter | x | `event` | `good` |\n\
                    | metric | kind | labels | meaning |\n| `handfast_b_seconds` | histogram | | x |\n";
    let metrics = documented(document);
    let check = |text: &str, expected: &[&str]| assert_eq!(unknown(text, &metrics, document), expected, "{text}");
    check(r#"rate(handfast_a_total{event="good",job="$job"}[5m]) + handfast_b_seconds_bucket"#, &[]);
    check("handfast_b_seconds / handfast_a_total_count", &["handfast_b_seconds", "handfast_a_total_count"]);
    check(r#"handfast_a_total{event=~"good|bad", color="red"}"#, &["bad", "handfast_a_total{color}", "red"]);
}
