//! Compaction: histories that have grown long are replaced by summaries.

mod cancelled;
mod cuts;
mod histories;
