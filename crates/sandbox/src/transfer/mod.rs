//! Content on its way into and out of a sandbox that shares no folders with the host: it travels by the guest's protocol.

mod belongings;
mod bringing;
mod pages;
mod parcel;
mod pieces;
mod room;
mod traveller;
mod workspace;

pub use traveller::Transfer;
pub(crate) use traveller::Traveller;
