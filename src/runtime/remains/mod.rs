//! What sessions have at their models' services when they are deleted here, and its deletion there.
//!
//! Which files they are stands in the record of a session. Before that is removed, they are noted (`shelf`), and the note goes when they are
//! gone at the service: so a service that is down holds up no deletion here, and a crash leaves the record, the note, or both. A note
//! counts only where the record is gone: whose deletion was refused, or broke off before, keeps its files. Skills that were uploaded for a
//! tenant go by the same notes (`skills`).

mod carrying;
mod found;
mod noted;
mod parting;
mod report;
mod shelf;
#[cfg(feature = "anthropic")]
mod skills;

pub(super) use carrying::{Carried, Silent, carry};
pub(super) use parting::Parting;
pub(super) use shelf::Shelf;

pub use report::{Deletion, LeftAtService, SkillFate, SkillsAtService};
