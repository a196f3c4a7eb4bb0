//! Exports all entries into a file, which has its name once it is complete, or to standard output.

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, Result};
use handfast_patterns::ledger::ExportFormat;
use serde_json::json;

use super::Books;
use super::arguments::LedgerFormat;
use crate::console::{Console, write_out};
use crate::exit::Exit;
use crate::unfinished::UnfinishedFile;

impl Books {
    pub(super) async fn export(&self, format: LedgerFormat, to: Option<&Path>, console: Console) -> Result<Exit> {
        let format = match format {
            LedgerFormat::Jsonl => ExportFormat::Json,
            LedgerFormat::Csv => ExportFormat::Csv,
        };
        let failed = || to.map(|path| format!("--to: cannot write {}", path.display())).unwrap_or_default();
        let mut file = to.map(UnfinishedFile::create_new).transpose().context("--to")?;
        let bar = console.progress("export", "bytes", 0);
        let ledger = self.attach().await?;
        let mut export = ledger.export(format).await?;
        let mut bytes = 0;
        while let Some(lines) = export.next().await? {
            match &mut file {
                Some(file) => file.write_all(lines.as_bytes()).with_context(failed)?,
                None => write_out(lines.as_bytes())?,
            }
            bytes += lines.len() as u64;
            bar.inc(lines.len() as u64);
        }
        bar.finish_and_clear();
        if let (Some(file), Some(path)) = (file, to) {
            file.finish().context("--to")?;
            let json = json!({ "bytes": bytes, "to": path.to_string_lossy() });
            console.report(|| format!("wrote {bytes} bytes to {}", path.display()), &json)?;
        }
        Ok(Exit::Good)
    }
}
