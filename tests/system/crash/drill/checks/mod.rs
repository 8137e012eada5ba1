//! The checks of a drill: what is recorded, what lies in folders, and what is left on the machine.

mod containers;
pub(crate) mod findings;
pub(crate) mod folders;
pub(crate) mod leftovers;
mod record;
pub(crate) mod whole_record;
