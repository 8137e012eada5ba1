//! File operations. Each runs in a worker process, beneath the handles of the roots.

mod install;
mod io;
mod list;
mod list_tree;
mod resolve;
mod view;
mod worker;
mod write;

pub(crate) use resolve::{Roots, open_dir};
pub(crate) use worker::FileRequest;
