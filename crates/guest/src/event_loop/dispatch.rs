//! Handles frames from the host.

use std::os::fd::AsFd;
use std::time::Duration;

use conjure_guest::protocol::{Frame, FrameKind, GuestError, Open, Request, is_tunnel};

use super::EventLoop;
use super::open_job::{Channel, Child, Job};
use crate::error::FatalError;
use crate::exec::{ExecEnv, ExecJob, MemoryFootprint, WriteAccess};
use crate::file_job::{FileJob, FileJobEnv};
use crate::job::{AbortReason, JobContext, too_many};
use crate::quota::{QuotaMonitor, hard_limit_error};
use crate::{clock, error};

/// The maximum number of operations at a time.
const CHANNELS_MAX: usize = 1024;

impl EventLoop {
    pub(super) fn take_frames(&mut self) -> Result<(), FatalError> {
        while let Some(frame) = self.decoder.next_frame()? {
            self.frame(&frame)?;
        }
        Ok(())
    }

    fn frame(&mut self, frame: &Frame) -> Result<(), FatalError> {
        let channel_id = frame.channel;
        if self.config.is_none() && frame.kind != FrameKind::Hello {
            return Err(FatalError::Protocol(format!("a {:?} frame before `Hello`", frame.kind)));
        }
        if is_tunnel(channel_id) {
            return self.with_tunnels(|tunnels, cx| tunnels.frame(frame, cx));
        }
        match frame.kind {
            FrameKind::Hello if self.config.is_some() => {
                return Err(FatalError::Protocol("a second `Hello` frame".to_owned()));
            }
            FrameKind::Hello => self.greet(frame.json()?, None, None)?,
            FrameKind::Open => {
                let open = frame.json()?;
                if !self.used.claim(channel_id) {
                    return Err(FatalError::Protocol(format!(
                        "channel {channel_id} cannot be opened: it was used before"
                    )));
                }
                self.open(channel_id, &open);
            }
            FrameKind::Data => {
                let (_, content) = frame.data()?;
                let channel = self.channels.get(&channel_id);
                if channel.is_some_and(|channel| channel.job.lives_between_calls()) {
                    self.resume();
                }
                let taken = self.with_job(channel_id, |job, cx| match job {
                    Job::Exec(job) => job.data(content, cx),
                    Job::File(job) => job.data(content, cx),
                });
                if let Some(Err(error)) = taken {
                    return Err(FatalError::Data { channel: channel_id, error });
                }
            }
            FrameKind::Eof => {
                self.with_job(channel_id, |job, cx| match job {
                    Job::Exec(job) => job.end_of_data(cx),
                    Job::File(job) => job.end_of_data(cx),
                });
            }
            FrameKind::Credit => {
                let bytes = frame.credit()?;
                if let Some(channel) = self.channels.get_mut(&channel_id) {
                    channel.credit = channel.credit.saturating_add(u64::from(bytes));
                }
            }
            FrameKind::Cancel => {
                self.with_job(channel_id, |job, cx| job.abort(AbortReason::Cancelled, cx.now));
            }
            FrameKind::Welcome | FrameKind::Done | FrameKind::Tunnel => {
                return Err(FatalError::Protocol(format!(
                    "a {:?} frame, which only a guest may send",
                    frame.kind
                )));
            }
        }
        Ok(())
    }

    fn open(&mut self, channel_id: u32, open: &Open) {
        let ended = match self.handle_pause_request(&open.request) {
            None => self.start(channel_id, open).err().map(Err),
            ended => ended,
        };
        if let Some(result) = ended {
            self.frames.done(channel_id, &error::encode(&result));
        }
    }

    fn start(&mut self, channel_id: u32, open: &Open) -> Result<(), GuestError> {
        if self.channels.len() >= CHANNELS_MAX {
            return Err(too_many(self.channels.len()));
        }
        // Requests are handled only after the handshake.
        let Some(session) = &mut self.config else { return Ok(()) };
        let now = clock::now();
        let has_output = self.channels.values().any(|channel| !channel.job.lives_between_calls());
        let mut credit = u64::from(open.credit);
        let mut cx = JobContext {
            channel: channel_id,
            now,
            credit: &mut credit,
            frames: &mut self.frames,
            scratch: &mut self.scratch,
            spill: session.spill.as_mut(),
            cgroup_events: &mut self.cgroup_events,
            is_killing_orphans: self.orphan_kill.is_some(),
        };
        let (job, pid) = if let Request::Exec(request) = &open.request {
            if let Some(excess) = session.quota.as_mut().and_then(QuotaMonitor::exceeds_hard_limit) {
                return Err(hard_limit_error(&excess));
            }
            let exec_env = ExecEnv {
                env: &session.env,
                workdir: &session.workdir,
                open_files: self.open_files,
                limits: &session.limits,
                confinement: &session.command_confinement,
                oom_score: &self.oom_score,
                null: self.null.as_fd(),
                footprint: if !has_output && !cx.frames.is_large() {
                    MemoryFootprint::Small
                } else {
                    MemoryFootprint::Large
                },
                write_access: session.quota.as_ref().map_or(WriteAccess::Allowed, QuotaMonitor::write_access),
            };
            let (job, pid) = ExecJob::start(request, &exec_env, &mut self.shims, &mut cx)?;
            (Job::Exec(Box::new(job)), pid)
        } else {
            let write_budget = session.quota.as_ref().map(QuotaMonitor::write_budget);
            let content_root = session.content_root.as_ref().map(AsFd::as_fd);
            let env = FileJobEnv {
                roots: &session.roots,
                write_budget: write_budget.as_ref(),
                content_root,
                null: self.null.as_fd(),
            };
            let (job, pid) = FileJob::start(&open.request, &env, &mut cx)?;
            if let Some(monitor) = session.quota.as_mut().filter(|_| job.is_change()) {
                monitor.change_started();
            }
            (Job::File(job), pid)
        };
        self.children.insert(pid, Child { channel: channel_id, abandoned_pipes: Vec::new() });
        let deadline = open.timeout_ms.and_then(|timeout| now.checked_add(Duration::from_millis(timeout)));
        self.channels.insert(channel_id, Channel { job, credit, deadline });
        Ok(())
    }
}
