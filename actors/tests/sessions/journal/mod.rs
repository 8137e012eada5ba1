//! The journal under sessions: what is recorded, charged and kept, also when its disk or its thread fails.

mod event_log;
mod full_disk;
mod pending_charges;
mod writer;
