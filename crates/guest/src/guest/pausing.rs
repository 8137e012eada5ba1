//! The guest as the one that lets what programs left running stand still.

use conjure_guest::protocol::{ErrorCode, GuestError, Reply, Request};

use super::{Guest, Job};
use crate::error;
use crate::pause::{Pause, Unrest};

impl Guest {
    /// The result of a request that is about a pause. Else `None`; what is to be run has everything go on.
    pub(super) fn rest(&mut self, request: &Request) -> Option<Result<Reply, GuestError>> {
        match request {
            Request::Pause => Some(self.pause()),
            Request::Resume => Some(Ok(Reply::Resume { processes: self.resume() })),
            Request::Exec(_) => {
                self.resume();
                if let Some(standstill) = &mut self.standstill {
                    standstill.was_entered = true;
                }
                None
            }
            _ => None,
        }
    }

    fn pause(&mut self) -> Result<Reply, GuestError> {
        let is_running = |job: &Job| matches!(job, Job::Exec(job) if job.is_running());
        if self.channels.values().any(|channel| is_running(&channel.job)) {
            let message = "cannot pause: a program runs; wait for its end, or cancel it";
            return Err(error::error(ErrorCode::BadRequest, message));
        }
        let children = &self.children;
        match Pause::begin(self.pause.take(), |pid| children.contains_key(&pid)) {
            Ok((pause, processes)) => {
                self.pause = Some(pause);
                Ok(Reply::Pause { processes })
            }
            Err(Unrest::Refused(pid)) => {
                let message =
                    format!("cannot pause: the system does not permit that process {pid} is stopped");
                Err(error::error(ErrorCode::PermissionDenied, message))
            }
            Err(Unrest::Storm) => {
                let message = "cannot pause: processes keep starting others or keep each other running";
                Err(error::error(ErrorCode::TimedOut, message))
            }
        }
    }

    fn resume(&mut self) -> u64 {
        let children = &self.children;
        self.pause.take().map_or(0, |pause| pause.end(|pid| children.contains_key(&pid)))
    }
}
