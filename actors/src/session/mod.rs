//! A session: a conversation that has one owner at a time, is durable, and can be spoken to from many places.

mod ledger;

pub use ledger::{EVENT_KIND, JournalLedger};
