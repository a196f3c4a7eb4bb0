//! `handfast jobs schedules`: the recurring jobs of a queue, with the times at which they are due.

use anyhow::Result;
use bson::{Bson, Document, doc};
use handfast_patterns::job_queue::ScheduleFields;
use handfast_store::{Find, StoreExt as _};
use serde_json::json;

use super::Queue;
use crate::command::pattern::raw;
use crate::console::Console;
use crate::exit::Exit;
use crate::flags::LimitFlags;
use crate::id::{extended_json, shown};
use crate::listing::Listing;

impl Queue {
    /// Lists the schedules of a collection, the nearest first; at the end those without a further occurrence.
    pub(super) async fn schedules(&self, collection: &str, limit: LimitFlags, console: Console) -> Result<Exit> {
        let namespace = self.collection.sibling(collection, "--schedules").await?;
        let fields = ScheduleFields::default();
        let mut listing = Listing::new(&["name", "due", "next", "type", "cron", "zone"]);
        for has_next in [true, false] {
            let filter = doc! { &fields.cron: { "$exists": true }, &fields.next: { "$exists": has_next } };
            let mut find = Find::new(namespace.clone(), raw(&filter)?);
            find.sort = raw(&doc! { &fields.next: 1, "_id": 1 })?;
            find.limit = Some(limit.and_one().into());
            for found in self.collection.store.find_all(find).await? {
                self.push(&mut listing, &fields, &Document::try_from(&*found)?);
            }
        }
        console.list(&listing.bounded(limit.limit))?;
        Ok(Exit::Good)
    }

    fn push(&self, listing: &mut Listing, fields: &ScheduleFields, schedule: &Document) {
        let text = |field: &str| schedule.get_str(field).unwrap_or_default().to_owned();
        let name = schedule.get("_id").cloned().unwrap_or(Bson::Null);
        let next = schedule.get_datetime(&fields.next).ok().copied();
        let due = next.map_or_else(|| "never".to_owned(), |next| self.collection.due(next));
        let at = next.and_then(|next| next.try_to_rfc3339_string().ok()).unwrap_or_default();
        listing.push(
            [shown(&name), due, at, text(&fields.kind), text(&fields.cron), text(&fields.zone)],
            json!({
                "name": extended_json(&name),
                "next": next.map(|next| extended_json(&Bson::DateTime(next))),
                "type": text(&fields.kind),
                "cron": text(&fields.cron),
                "zone": text(&fields.zone),
                "priority": schedule.get(&fields.priority).map(extended_json),
                "details": schedule.get(&fields.details).map(extended_json),
            }),
        );
    }
}
