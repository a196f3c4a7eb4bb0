//! The figures as a table for people and as JSON for programs.

use std::time::Duration;

use serde::Serialize;

use super::measure::InterleavedRounds;

/// A comparison of a subject with its baseline, measured in turns in the same run.
#[derive(Serialize)]
pub(crate) struct Comparison {
    pub(crate) case: String,
    pub(crate) baseline: String,
    /// Operations a second.
    pub(crate) rate: f64,
    /// The baseline's operations a second.
    pub(crate) baseline_rate: f64,
    /// `rate / baseline_rate`.
    pub(crate) ratio: f64,
    /// Processor time of one operation in microseconds, client and server together: what other programs take of the
    /// machine is not in it. Without waits for a disk, the baseline's figure divided by this is the ratio on an idle machine.
    pub(crate) processor_us: f64,
    /// Like `processor_us`, for the baseline.
    pub(crate) baseline_processor_us: f64,
    /// The ratio to reach, where one is promised.
    pub(crate) promised: Option<f64>,
    pub(crate) kept: Option<bool>,
    /// The baseline's median latency in microseconds: on a busy machine medians say more than rates, which contain the time of other
    /// processes.
    pub(crate) baseline_p50_us: f64,
    /// Latencies in microseconds.
    pub(crate) p50_us: f64,
    /// See `p50_us`.
    pub(crate) p95_us: f64,
    /// See `p50_us`.
    pub(crate) p99_us: f64,
    /// See `p50_us`.
    pub(crate) p999_us: f64,
    pub(crate) note: String,
}

impl Comparison {
    /// Compares a case with its baseline.
    pub(crate) fn new(case: &str, baseline_name: &str, rounds: &InterleavedRounds, promised: Option<f64>) -> Self {
        let InterleavedRounds { subject, baseline } = rounds;
        let (rate, baseline_rate) = (subject.rate(), baseline.rate());
        let ratio = if baseline_rate > 0.0 { rate / baseline_rate } else { 0.0 };
        Comparison {
            case: case.to_owned(),
            baseline: baseline_name.to_owned(),
            rate,
            baseline_rate,
            ratio,
            processor_us: microseconds(subject.processor()),
            baseline_processor_us: microseconds(baseline.processor()),
            promised,
            kept: promised.map(|promised| ratio >= promised),
            baseline_p50_us: microseconds(baseline.latency(0.5)),
            p50_us: microseconds(subject.latency(0.5)),
            p95_us: microseconds(subject.latency(0.95)),
            p99_us: microseconds(subject.latency(0.99)),
            p999_us: microseconds(subject.latency(0.999)),
            note: String::new(),
        }
    }

    /// Sets the ratio that is promised.
    pub(crate) fn with_promise(mut self, promised: Option<f64>) -> Self {
        self.promised = promised;
        self.kept = promised.map(|promised| self.ratio >= promised);
        self
    }

    /// Adds what else was counted.
    pub(crate) fn with_note(mut self, note: String) -> Self {
        self.note = note;
        self
    }
}

/// A quantity that has a bound instead of a baseline.
#[derive(Serialize)]
pub(crate) struct Measurement {
    pub(crate) case: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// The value to stay under.
    pub(crate) promised: f64,
    pub(crate) kept: bool,
    /// The conditions of the measurement.
    pub(crate) note: String,
}

impl Measurement {
    /// Compares a value with its bound.
    pub(crate) fn new(case: &str, value: f64, unit: &'static str, promised: f64) -> Self {
        let kept = value < promised;
        Measurement { case: case.to_owned(), value, unit, promised, kept, note: String::new() }
    }

    /// Adds how it was measured.
    pub(crate) fn with_note(mut self, note: String) -> Self {
        self.note = note;
        self
    }
}

/// A figure that may have a promise.
pub(crate) trait Promised {
    /// Returns a line about the missed promise; none if it is kept, or there is none.
    fn missed(&self) -> Option<String>;
}

impl Promised for Comparison {
    fn missed(&self) -> Option<String> {
        let promised = self.promised.filter(|_| self.kept == Some(false))?;
        let Comparison { case, baseline, ratio, .. } = self;
        Some(format!("{case}: {ratio:.3} of {baseline}, at least {promised:.3} is promised"))
    }
}

impl Promised for Measurement {
    fn missed(&self) -> Option<String> {
        let Measurement { case, value, unit, promised, kept, .. } = self;
        (!kept).then(|| format!("{case}: {value:.1} {unit}, less than {promised:.0} {unit} is promised"))
    }
}

/// Returns the mark of a promise in a table.
fn mark(kept: Option<bool>) -> String {
    match kept {
        None => "",
        Some(true) => "yes",
        Some(false) => "MISSED",
    }
    .to_owned()
}

/// Returns a table, and a line for each missed promise.
fn with_missed(table: String, cases: &[impl Promised]) -> String {
    let missed = cases.iter().filter_map(Promised::missed).map(|missed| format!("MISSED  {missed}\n"));
    let missed: String = missed.collect();
    let why = match cfg!(debug_assertions) && !missed.is_empty() {
        true => "This program was built for debugging and is many times slower: promises are about --release.\n",
        false => "",
    };
    table + why + &missed
}

/// Returns a table with a line for each measurement.
pub(crate) fn measurements(measurements: &[Measurement]) -> String {
    let mut lines = vec![["case", "value", "unit", "promised", "kept", "measured"].map(str::to_owned)];
    for measurement in measurements {
        lines.push([
            measurement.case.clone(),
            format!("{:.1}", measurement.value),
            measurement.unit.to_owned(),
            format!("< {:.0}", measurement.promised),
            mark(Some(measurement.kept)),
            measurement.note.clone(),
        ]);
    }
    with_missed(aligned(&lines), measurements)
}

/// Returns a table with a line for each comparison.
pub(crate) fn table(comparisons: &[Comparison]) -> String {
    let mut lines = vec![[
        "case".to_owned(),
        "per s".to_owned(),
        "baseline".to_owned(),
        "per s".to_owned(),
        "ratio".to_owned(),
        "promised".to_owned(),
        "kept".to_owned(),
        "processor us".to_owned(),
        "baseline p50 us".to_owned(),
        "p50 us".to_owned(),
        "p95 us".to_owned(),
        "p99 us".to_owned(),
        "p99.9 us".to_owned(),
        "counted".to_owned(),
    ]];
    for comparison in comparisons {
        lines.push([
            comparison.case.clone(),
            format!("{:.0}", comparison.rate),
            comparison.baseline.clone(),
            format!("{:.0}", comparison.baseline_rate),
            format!("{:.2}", comparison.ratio),
            comparison.promised.map(|ratio| format!(">= {ratio:.2}")).unwrap_or_default(),
            mark(comparison.kept),
            format!("{:.1} / {:.1}", comparison.processor_us, comparison.baseline_processor_us),
            format!("{:.1}", comparison.baseline_p50_us),
            format!("{:.1}", comparison.p50_us),
            format!("{:.1}", comparison.p95_us),
            format!("{:.1}", comparison.p99_us),
            format!("{:.1}", comparison.p999_us),
            comparison.note.clone(),
        ]);
    }
    with_missed(aligned(&lines), comparisons)
}

/// Aligns the columns of lines.
fn aligned<const COLUMNS: usize>(lines: &[[String; COLUMNS]]) -> String {
    let mut widths = [0; COLUMNS];
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for line in lines {
        let cells: Vec<String> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn microseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests;
