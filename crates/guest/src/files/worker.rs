//! File operations in the worker: a process of its own that may block.
//!
//! A worker's descriptors are:
//! - 0: content from the guest
//! - 1: content for the guest
//! - 2: standard error
//! - 3: the pipe for the reply
//! - 4: the directory with a quota, if there is one
//! - 5: the directory that holds the content directories, if there is one
//! - from 6 on: the roots
//!
//! The worker exits with 0 once its reply is complete.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal};

use conjure_guest::protocol::{GuestError, Reply, Request};

use crate::quota::{WorkerWriteBudget, WriteBudget};
use crate::{error, sys};

use super::install::{self, ContentLabel};
use super::resolve::{Roots, WorkerRoots};
use super::{list, list_tree, view, write};

/// A file operation for a worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileRequest<'a> {
    pub(crate) request: &'a Request,
    pub(crate) roots: &'a Roots,
    /// How much may be written beneath the root that has a quota.
    pub(crate) write_budget: Option<&'a WriteBudget<'a>>,
    pub(crate) guest: Pid,
}

/// The worker's ends of its pipes.
#[derive(Debug)]
struct Pipes {
    input: File,
    output: File,
}

impl FileRequest<'_> {
    /// Runs the worker.
    pub(crate) fn run(&self, descriptors: Vec<OwnedFd>) -> u8 {
        if rustix::process::set_parent_process_death_signal(Some(Signal::TERM)).is_err()
            || rustix::process::getppid() != Some(self.guest)
        {
            return 1;
        }
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next();
        let (Some(input), Some(output), Some(_stderr), Some(reply_to), Some(limited), Some(content_root)) =
            (next(), next(), next(), next(), next(), next())
        else {
            return 1;
        };
        let budget =
            self.write_budget.map(|write_budget| WorkerWriteBudget::new(write_budget, limited, self.guest));
        let roots = self.roots.in_worker(descriptors, budget);
        let result =
            self.execute(&roots, &content_root, Pipes { input: input.into(), output: output.into() });
        match File::from(reply_to).write_all(&error::encode(&result)) {
            Ok(()) => 0,
            Err(_) => 1,
        }
    }

    fn execute(
        &self,
        roots: &WorkerRoots<'_>,
        content_root: &OwnedFd,
        mut pipes: Pipes,
    ) -> Result<Reply, GuestError> {
        let is_change = matches!(
            self.request,
            Request::Write { .. }
                | Request::Replace { .. }
                | Request::MakeDir { .. }
                | Request::Install { .. }
                | Request::Remove { .. }
        );
        if !is_change {
            // These operations leave nothing behind, wherever they are ended.
            sys::allow_termination();
        }
        match self.request {
            Request::View { path, range, max_bytes } => {
                view::view(roots, path, *range, *max_bytes, &mut pipes.output)
            }
            Request::Write { path, mode } => write::write(roots, path, *mode, &mut pipes.input),
            Request::Install { content_dir, name, kind } => install::install(
                content_root,
                &ContentLabel { content_dir, name, kind: *kind },
                &mut pipes.input,
            ),
            Request::Remove { content_dir, name } => install::remove_content(content_root, content_dir, name),
            Request::Replace { path, old, new } => write::replace(roots, path, old, new),
            Request::List { path, depth, max_entries, hidden } => {
                let limits = list::ListLimits { depth: *depth, entries: *max_entries, hidden: *hidden };
                list::list(roots, path, limits)
            }
            Request::Walk { path, after, max_entries } => {
                list_tree::list_tree(roots, path, after.as_deref(), *max_entries)
            }
            Request::MakeDir { path, mode } => write::make_dir(roots, path, *mode),
            Request::Read { path, offset, length } => {
                view::read(roots, path, *offset, *length, &mut pipes.output)
            }
            Request::Exec(_) | Request::Pause | Request::Resume => {
                Err(error::io("a file worker runs only file operations"))
            }
        }
    }
}
