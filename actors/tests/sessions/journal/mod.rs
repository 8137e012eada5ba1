//! The journal under sessions: what is recorded, charged and kept, also when its disk or its thread fails.

mod debts;
mod full_disk;
mod ledger;
mod writer;
