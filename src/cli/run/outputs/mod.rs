//! The files that a session produced: their list, their report at the end of a run, and the copies for `--out`.

pub(super) mod output_copy;
pub(super) mod output_list;
pub(super) mod output_report;

pub(crate) use output_copy::{OutputTarget, open_dir as open_out_dir};
pub(crate) use output_list::{hosted_file_ids, list_outputs, sort_by_events, split_newest};
pub(crate) use output_report::{hosted_line, human_size};
