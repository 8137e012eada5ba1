//! The checks of a drill: recorded events, directories, and leftovers on the machine.

mod containers;
pub(crate) mod dirs;
pub(crate) mod findings;
pub(crate) mod leftovers;
mod record;
pub(crate) mod whole_record;
