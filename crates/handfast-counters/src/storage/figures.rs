//! All stored figures, item after item, as an export writes them.

use jiff::civil::Date;

use super::imports::Figure;
use super::walk::{ItemFigures, Walk};
use super::{Storage, StorageForm};
use crate::{Error, Item, Kind, Result};

/// The stored figures of all items, in the order of kinds, ids and days: as of one moment, or, of a storage without transactions, those of each item as
/// of the moment at which it is read.
pub struct Figures {
    walk: Walk,
    storage: Storage,
}

impl Figures {
    /// Returns the figures of the next item: the views without days first, then each day with views; `None` at the end. An item without views has
    /// no figures.
    ///
    /// # Errors
    /// [`Error::Store`]; [`Error::Damaged`] for documents that cannot be read, and for views on a day that the calendar does not have.
    pub async fn next(&mut self) -> Result<Option<Vec<Figure>>> {
        let Some(figures) = self.walk.next().await? else { return Ok(None) };
        let figures = figures?;
        // The total and the days were read at different moments, and a month may have become a part of the base in between.
        if self.storage.form() == StorageForm::SingleDocuments && figures.difference()?.is_some() {
            return of_item(&self.storage.figures_of_item(&figures.item).await?).map(Some);
        }
        of_item(&figures).map(Some)
    }
}

impl Storage {
    /// Returns the stored figures of all items, or of those of a kind. Views in the queue are not part of them.
    pub async fn figures(&self, kind: Option<&Kind>) -> Result<Figures> {
        Ok(Figures { walk: self.walk(kind).await?, storage: self.clone() })
    }
}

fn of_item(figures: &ItemFigures) -> Result<Vec<Figure>> {
    let figure = |day, views| Figure { item: figures.item.clone(), day, views };
    let mut found = Vec::new();
    if figures.base > 0 {
        found.push(figure(None, figures.base));
    }
    for month in &figures.months {
        for (day, views) in month.days.iter().enumerate().filter(|(_, views)| **views > 0) {
            found.push(figure(Some(date(&figures.item, &month.month, day)?), *views));
        }
    }
    Ok(found)
}

/// Returns the day at this index of a month.
fn date(item: &Item, month: &str, index: usize) -> Result<Date> {
    let day = index + 1;
    let text = format!("{month}-{day:02}");
    text.parse().map_err(|_: jiff::Error| {
        Error::damaged(format!("{item} has views on {text}, which is no day of the calendar"))
    })
}
