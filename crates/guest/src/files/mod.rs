//! File operations, each in a worker process, beneath the handles of the roots.

mod change;
mod list;
mod provide;
mod read;
mod roots;
mod view;
mod walk;
mod worker;

pub(crate) use roots::{Roots, open_folder};
pub(crate) use worker::Work;
