#![doc = include_str!("../README.md")]

mod buffer;
mod counters;
mod document_name;
mod error;
mod event_document;
mod hex;
mod item;
mod readiness;
mod retention;
mod storage;
mod time_limit;
mod view;
mod visitor;

pub use buffer::{
    BATCH_ITEMS_MAX, Buffer, EmbeddedBuffer, EmbeddedBufferOptions, Fence, IncrementOutcome, Instance, InstanceReport,
    MemoryBuffer, Owner, QueueDepth, Reading, RedisBuffer, RedisBufferOptions, RedisHealth, RedisScripts,
    RememberedKeys, Stored, Total, UpsertOutcome,
};
pub use counters::{AWAITED_IDLE, CountOutcome, Counters, CountersOptions, Flushed, IDS_MAX, PassError};
pub use error::{Error, Result};
pub use item::{ID_BYTES_MAX, Item, ItemId, KIND_BYTES_MAX, Kind};
pub use jiff;
pub use readiness::{KindQueue, Readiness, SavedViews};
pub use storage::{
    DayViews, Difference, EarlierImports, Figure, Figures, IMPORT_FIGURES_MAX, IMPORT_NAME_BYTES_MAX, Import,
    ImportName, ImportPosition, ImportRecord, ImportSaved, KindSummary, LineState, LinesHash, REPORT_DAYS_MAX, Saved,
    SharedBeginning, Storage, StorageForm, TOP_ITEMS_MAX, TOTAL_MAX, TopItem, Trimmed, Verification,
};
pub use view::{
    Batch, COUNTED_TOTAL_MAX, Change, Event, IdempotencyKey, KEY_BYTES_MAX, SequenceNumber, VIEWS_MAX, View, parse_day,
};
pub use visitor::{Salt, VISITOR_WINDOW_MAX, Visitor, VisitorMark};
