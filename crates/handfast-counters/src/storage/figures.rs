//! All stored figures, item after item, as an export writes them.

use jiff::civil::Date;

use super::Storage;
use super::imports::Figure;
use super::walk::{ItemFigures, Walk};
use crate::{Error, Item, Kind, Result};

/// The stored figures of all items as of one moment, in the order of kinds, ids and days.
pub struct Figures {
    walk: Walk,
}

impl Figures {
    /// Returns the figures of the next item: the views without days first, then each day with views; `None` at the end. An item without views has
    /// no figures.
    ///
    /// # Errors
    /// [`Error::Store`]; [`Error::Damaged`] for documents that cannot be read, and for views on a day that the calendar does not have.
    pub async fn next(&mut self) -> Result<Option<Vec<Figure>>> {
        self.walk.next().await?.map(|figures| of_item(&figures?)).transpose()
    }
}

impl Storage {
    /// Returns the stored figures of all items, or of those of a kind. Views in the queue are not part of them.
    pub async fn figures(&self, kind: Option<&Kind>) -> Result<Figures> {
        Ok(Figures { walk: self.walk(kind).await? })
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
