//! The host's side of the protocol, without I/O. Its input is frames of the guest; its output is frames for the
//! guest, and events for each call.
//!
//! It does not trust the guest. A frame that the protocol does not allow is a [`Violation`]. After a violation the
//! whole sandbox is lost, because the state of the guest is unknown.

use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use conjure_base::Deadline;
use conjure_guest::protocol::{
    Frame, FrameKind, GuestError, Open, PAYLOAD_MAX, Reply, StreamId, TUNNEL_WINDOW, is_tunnel,
};

use super::channel::{Channel, ChannelOwner, Outgoing};
use super::tunnels::{TunnelPolicy, TunnelRead, Tunnels};
use super::violation::Violation;
use crate::error::{SandboxError, SandboxErrorKind};

/// The maximum number of bytes that are passed to the stream at once. It limits how long a control frame waits for
/// content to be written.
const BATCH: usize = 128 * 1024;

/// The next event of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// Content, in order.
    Data(StreamId, Bytes),
    /// The result; nothing follows.
    Done(Result<Reply, GuestError>),
    /// The sandbox was lost before the result; nothing follows.
    Lost(SandboxError),
}

/// All channels of one stream.
#[derive(Debug, Default)]
pub(super) struct Multiplexer {
    channels: BTreeMap<u32, Channel>,
    tunnels: Tunnels,
    /// The number of the last opened channel. Numbers are never reused.
    last: u32,
    /// Channels with control frames to write, each once. They come before all content.
    control: VecDeque<u32>,
    /// Channels with content to write, each once. They take turns, one frame each.
    data: VecDeque<u32>,
    /// The reason why the sandbox is lost.
    failure: Option<SandboxError>,
    /// The writer task, while there is nothing to write.
    writer: Option<Waker>,
    /// The tasks to wake after the lock is released.
    wakes: Vec<Waker>,
}

impl Multiplexer {
    pub(super) fn new(tunnel_policy: TunnelPolicy) -> Self {
        Self { tunnels: Tunnels::new(tunnel_policy), ..Self::default() }
    }

    /// Opens a channel.
    ///
    /// # Errors
    /// If the sandbox is lost, or the request is longer than a frame.
    pub(super) fn open(&mut self, open: &Open, deadline: Deadline) -> Result<u32, SandboxError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let payload = serde_json::to_vec(open)
            .map_err(|error| SandboxError::new(SandboxErrorKind::BadRequest, error.to_string()))?;
        if payload.len() > PAYLOAD_MAX {
            return Err(SandboxError::new(
                SandboxErrorKind::TooLarge,
                format!(
                    "the request has {} bytes, the most is {PAYLOAD_MAX}: pass large content as a file or as \
                     standard input",
                    payload.len()
                ),
            ));
        }
        let id = self.last.checked_add(1).filter(|id| !is_tunnel(*id)).ok_or_else(|| {
            SandboxError::new(SandboxErrorKind::Lost, "the sandbox has served all calls that it can number")
        })?;
        self.last = id;
        self.channels.insert(id, Channel::new(payload, open.credit, deadline));
        self.control_due(id);
        Ok(id)
    }

    /// Processes a frame of the guest.
    pub(super) fn receive(&mut self, frame: Frame) -> Result<(), Violation> {
        let id = frame.channel;
        let kind = frame.kind;
        if is_tunnel(id) {
            return self.tunnels.receive(frame, &mut self.wakes);
        }
        if !matches!(kind, FrameKind::Data | FrameKind::Credit | FrameKind::Done) {
            return Err(Violation::Kind(kind));
        }
        let channel = self
            .channels
            .get_mut(&id)
            // Before `Open` was written, the guest cannot know the channel. After `Done`, no frame may follow.
            .filter(|channel| channel.outgoing.open.is_none() && channel.done.is_none())
            .ok_or(Violation::Channel { kind, channel: id })?;
        match kind {
            FrameKind::Data => {
                let (stream, content) = frame.data()?;
                if !channel.incoming.spend(content.len()) {
                    return Err(Violation::Credit(id));
                }
                if channel.owner == ChannelOwner::Call {
                    channel.incoming.push(stream, frame.payload);
                    self.wakes.extend(channel.incoming.waiter.take());
                }
            }
            FrameKind::Credit => {
                if !channel.outgoing.granted(frame.credit()?) {
                    return Err(Violation::Grant(id));
                }
                self.wakes.extend(channel.outgoing.waiter.take());
            }
            _ => {
                let reply = frame.json()?;
                channel.outgoing.close();
                self.wakes.extend(channel.outgoing.waiter.take());
                self.wakes.extend(channel.incoming.waiter.take());
                channel.done = Some(reply);
                if channel.owner == ChannelOwner::Nobody {
                    self.channels.remove(&id);
                }
            }
        }
        Ok(())
    }

    /// Fills `buffer` with frames to write. Pending while there are none, and forever once the sandbox is lost.
    pub(super) fn poll_fill(&mut self, buffer: &mut Vec<u8>, cx: &mut Context<'_>) -> Poll<()> {
        if self.failure.is_none() {
            self.fill(buffer);
        }
        if buffer.is_empty() {
            self.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    fn fill(&mut self, buffer: &mut Vec<u8>) {
        let mut fits = true;
        while buffer.len() < BATCH
            && let Some(id) = self.control.pop_front()
        {
            if let Some(outgoing) = self.outgoing(id) {
                outgoing.in_control = false;
                fits &= outgoing.write_control(id, buffer);
            }
        }
        while buffer.len() < BATCH
            && let Some(id) = self.data.pop_front()
        {
            if let Some(outgoing) = self.outgoing(id) {
                fits &= outgoing.write_data(id, buffer);
                outgoing.in_data = outgoing.has_data();
                let (waiter, has_more) = (outgoing.waiter.take(), outgoing.in_data);
                self.wakes.extend(waiter);
                if has_more {
                    self.data.push_back(id);
                }
            }
        }
        debug_assert!(fits, "payloads were measured when they were accepted");
    }

    /// The next event of a call. `Done` and `Lost` remove the channel.
    pub(super) fn poll_event(&mut self, id: u32, cx: &mut Context<'_>) -> Poll<Event> {
        let Some(channel) = self.channels.get_mut(&id) else {
            return Poll::Ready(Event::Lost(self.failure.clone().unwrap_or_else(already_finished)));
        };
        if let Some((stream, bytes)) = channel.incoming.pop() {
            return Poll::Ready(Event::Data(stream, bytes));
        }
        if let Some(reply) = channel.done.take() {
            self.channels.remove(&id);
            return Poll::Ready(Event::Done(reply));
        }
        if let Some(failure) = &self.failure {
            let failure = failure.clone();
            self.channels.remove(&id);
            return Poll::Ready(Event::Lost(failure));
        }
        channel.incoming.waiter = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Sends as much of `piece` as the guest granted. Pending while it granted nothing. Content for an ended channel
    /// is dropped, because the caller learns of the end by an event.
    pub(super) fn poll_send(&mut self, id: u32, piece: &mut Bytes, cx: &mut Context<'_>) -> Poll<()> {
        let lost = self.failure.is_some();
        let Some(channel) = self.channels.get_mut(&id).filter(|_| !lost) else {
            piece.clear();
            return Poll::Ready(());
        };
        if channel.outgoing.accept(piece) {
            self.data_due(id);
            return Poll::Ready(());
        }
        channel.outgoing.waiter = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Marks the end of the content.
    pub(super) fn finish(&mut self, id: u32) {
        if let Some(channel) = self.channels.get_mut(&id) {
            channel.outgoing.finish();
            self.data_due(id);
        }
    }

    /// Grants the guest this many more bytes of content for a call.
    pub(super) fn grant(&mut self, id: u32, bytes: u32) {
        if let Some(channel) = self.channels.get_mut(&id).filter(|channel| channel.done.is_none()) {
            channel.incoming.extend(bytes);
            channel.outgoing.grant = channel.outgoing.grant.saturating_add(bytes);
            self.control_due(id);
        }
    }

    /// Asks the guest to end the operation and to send `Done` before `deadline`.
    pub(super) fn cancel(&mut self, id: u32, deadline: Deadline) {
        if let Some(channel) = self.channels.get_mut(&id).filter(|channel| channel.done.is_none()) {
            channel.deadline = channel.deadline.min(deadline);
            if channel.outgoing.cancel() {
                self.control_due(id);
            }
        }
    }

    /// Called when the caller has dropped its call.
    pub(super) fn abandon(&mut self, id: u32, deadline: Deadline) {
        let Some(channel) = self.channels.get_mut(&id) else { return };
        // A request that was never written needs no cancellation, nor does one that is done.
        if channel.outgoing.open.is_some() || channel.done.is_some() || self.failure.is_some() {
            self.channels.remove(&id);
            return;
        }
        channel.owner = ChannelOwner::Nobody;
        channel.incoming.discard();
        self.cancel(id, deadline);
    }

    /// Marks the sandbox as lost. Every running call ends with this error. The first error is kept.
    pub(super) fn fail(&mut self, error: SandboxError) {
        if self.failure.is_some() {
            return;
        }
        self.failure = Some(error);
        self.channels.retain(|_, channel| channel.owner == ChannelOwner::Call);
        for channel in self.channels.values_mut() {
            channel.outgoing.close();
            self.wakes.extend(channel.outgoing.waiter.take());
            self.wakes.extend(channel.incoming.waiter.take());
        }
        self.tunnels.fail(&mut self.wakes);
        self.control.clear();
        self.data.clear();
    }

    pub(super) fn failure(&self) -> Option<&SandboxError> {
        self.failure.as_ref()
    }

    /// The deadlines after which the guest counts as dead.
    pub(super) fn deadlines(&self) -> impl Iterator<Item = Deadline> {
        self.channels.values().filter(|channel| channel.done.is_none()).map(|channel| channel.deadline)
    }

    /// Takes the tasks to wake after the lock is released.
    pub(super) fn take_wakes(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakes)
    }

    /// Whether the caller has not yet taken the result of this channel.
    pub(super) fn is_open(&self, id: u32) -> bool {
        self.channels.contains_key(&id)
    }

    /// The next tunnel, with credit for its first content. Pending forever once the sandbox is lost.
    pub(super) fn poll_tunnel(&mut self, cx: &mut Context<'_>) -> Poll<u32> {
        let taken = self.tunnels.poll_take(cx);
        if let Poll::Ready(id) = taken {
            self.grant_tunnel(id, TUNNEL_WINDOW);
        }
        taken
    }

    pub(super) fn grant_tunnel(&mut self, id: u32, bytes: u32) {
        if self.tunnels.grant(id, bytes) {
            self.control_due(id);
        }
    }

    pub(super) fn poll_read_tunnel(&mut self, id: u32, cx: &mut Context<'_>) -> Poll<TunnelRead> {
        self.tunnels.poll_read(id, cx)
    }

    pub(super) fn poll_write_tunnel(
        &mut self,
        id: u32,
        bytes: &[u8],
        cx: &mut Context<'_>,
    ) -> Poll<Option<usize>> {
        let taken = self.tunnels.poll_write(id, bytes, cx);
        self.data_due(id);
        taken
    }

    /// Marks the end of the content.
    pub(super) fn finish_tunnel(&mut self, id: u32) {
        if let Some(outgoing) = self.tunnels.outgoing(id) {
            outgoing.finish();
            self.data_due(id);
        }
    }

    /// Called when the holder has dropped the tunnel.
    pub(super) fn release_tunnel(&mut self, id: u32) {
        self.tunnels.release(id);
        self.control_due(id);
    }

    #[cfg(test)]
    pub(super) fn open_channels(&self) -> usize {
        self.channels.len() + self.tunnels.count()
    }

    fn outgoing(&mut self, id: u32) -> Option<&mut Outgoing> {
        if is_tunnel(id) {
            self.tunnels.outgoing(id)
        } else {
            self.channels.get_mut(&id).map(|channel| &mut channel.outgoing)
        }
    }

    #[cfg(test)]
    pub(super) fn buffered_bytes(&self) -> usize {
        self.channels.values().map(|channel| channel.incoming.buffered_bytes()).sum()
    }

    fn control_due(&mut self, id: u32) {
        if let Some(outgoing) = self.outgoing(id)
            && !std::mem::replace(&mut outgoing.in_control, true)
        {
            self.control.push_back(id);
            self.wakes.extend(self.writer.take());
        }
    }

    fn data_due(&mut self, id: u32) {
        if let Some(outgoing) = self.outgoing(id)
            && outgoing.has_data()
            && !std::mem::replace(&mut outgoing.in_data, true)
        {
            self.data.push_back(id);
            self.wakes.extend(self.writer.take());
        }
    }
}

fn already_finished() -> SandboxError {
    SandboxError::new(SandboxErrorKind::BadRequest, "the call has ended already")
}
