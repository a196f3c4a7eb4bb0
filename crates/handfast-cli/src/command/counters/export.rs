//! `handfast counters export`: all saved figures as lines, item after item.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use serde_json::json;

use super::OpenedCounters;
use super::data_arguments::ExportArguments;
use super::figures::FigureFormat;
use super::report::waiting;
use crate::console::{Console, write_out};
use crate::exit::Exit;
use crate::listing::counted;
use crate::unfinished::UnfinishedFile;

/// The bytes that are written together.
const PART_BYTES: usize = 64 * 1024;

/// The place where the lines go.
struct Output {
    /// The file; standard output if there is none.
    file: Option<UnfinishedFile>,
    part: String,
}

impl Output {
    fn add(&mut self, text: &str) -> Result<()> {
        self.part.push_str(text);
        if self.part.len() >= PART_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        match &mut self.file {
            Some(file) => file.write_all(self.part.as_bytes()).context("--output: cannot write the file")?,
            None => write_out(self.part.as_bytes())?,
        }
        self.part.clear();
        Ok(())
    }
}

pub(super) async fn run(opened: &OpenedCounters, arguments: &ExportArguments, console: Console) -> Result<Exit> {
    let ExportArguments { kind, format, output: path, .. } = arguments;
    let kind = kind.as_ref().map(|kind| &kind.0);
    let of_name = path.as_deref().and_then(FigureFormat::of);
    let format = format.or(of_name).unwrap_or(FigureFormat::Jsonl);
    let file = path.as_deref().map(UnfinishedFile::create_new).transpose().context("--output")?;
    let mut output = Output { file, part: format.header().to_owned() };
    let bar = console.progress("export", "items", 0);
    let mut figures = opened.counters.storage().figures(kind).await?;
    let (mut items, mut lines) = (0_u64, 0_u64);
    while let Some(of_item) = figures.next().await? {
        for figure in &of_item {
            output.add(&format.line(figure))?;
        }
        items += 1;
        lines += of_item.len() as u64;
        bar.set_position(items);
    }
    output.write()?;
    bar.finish_and_clear();
    if lines == 0 {
        super::report::ensure_items(opened, kind).await?;
    }
    let waiting = waiting(opened, kind).await?;
    if let Some(waiting @ 1..) = waiting {
        let requests = counted(waiting, "requests");
        console
            .remark(&format!("not in the export: the views of {requests} in the queue, which `counters serve` saves"));
    }
    if let (Some(file), Some(path)) = (output.file, path) {
        file.finish().context("--output")?;
        let json = json!({ "lines": lines, "output": path.to_string_lossy(), "waiting": waiting });
        console.report(|| format!("wrote {} to {}", counted(lines, "lines"), path.display()), &json)?;
    }
    Ok(Exit::Good)
}
