//! Handles the requests `Pause` and `Resume`.

use conjure_guest::protocol::{ErrorCode, GuestError, Reply, Request};

use super::EventLoop;
use super::open_job::Job;
use crate::error;
use crate::pause::{PauseError, ProcessPause};

impl EventLoop {
    /// Returns the result of a pause or resume request, and `None` for others. Running a program resumes
    /// everything.
    pub(super) fn handle_pause_request(&mut self, request: &Request) -> Option<Result<Reply, GuestError>> {
        match request {
            Request::Pause => Some(self.pause()),
            Request::Resume => Some(Ok(Reply::Resume { processes: self.resume() })),
            Request::Exec(_) => {
                self.resume();
                if let Some(pause) = &mut self.measurement_pause {
                    pause.has_new_program = true;
                }
                None
            }
            _ => None,
        }
    }

    fn pause(&mut self) -> Result<Reply, GuestError> {
        let is_call =
            |job: &Job| matches!(job, Job::Exec(job) if job.is_running() && !job.lives_between_calls());
        if self.channels.values().any(|channel| is_call(&channel.job)) {
            let message = "cannot pause while a program runs; wait for its end, or cancel it";
            return Err(error::error(ErrorCode::BadRequest, message));
        }
        let children = &self.children;
        match ProcessPause::begin(self.pause_in_force.take(), |pid| children.contains_key(&pid)) {
            Ok((pause, processes)) => {
                self.pause_in_force = Some(pause);
                Ok(Reply::Pause { processes })
            }
            Err(PauseError::Refused(pid)) => {
                let message = format!("cannot pause: the system does not permit to stop process {pid}");
                Err(error::error(ErrorCode::PermissionDenied, message))
            }
            Err(PauseError::ForkStorm) => {
                let message = "cannot pause: processes keep starting others or keep each other running";
                Err(error::error(ErrorCode::TimedOut, message))
            }
        }
    }

    /// Resumes what a pause request stopped, and returns how many processes that were.
    pub(super) fn resume(&mut self) -> u64 {
        let children = &self.children;
        self.pause_in_force.take().map_or(0, |pause| pause.end(|pid| children.contains_key(&pid)))
    }
}
