//! Tunnels, the channels that the guest opens: their state, their content, and their holders.
//!
//! It is a part of the state machine and does no I/O. The number of tunnels is limited, and a guest may send nothing
//! on a tunnel before a stream has taken it. State: in memory. When the host process dies, it is lost together with
//! the connections.

use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use conjure_guest::protocol::{FIRST_TUNNEL, Frame, FrameKind, StreamId, TUNNEL_WINDOW, TUNNELS_MAX};

use super::channel::{Incoming, Outgoing};
use super::violation::{TunnelViolation, Violation};

/// Whether the guest may open tunnels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum TunnelPolicy {
    /// It must not, because the sandbox has no proxy.
    #[default]
    Reject,
    /// It may.
    Accept,
}

/// The result of reading a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TunnelRead {
    /// Content; not empty.
    Bytes(Bytes),
    /// The client has closed its direction.
    End,
    /// The connection broke.
    Reset,
}

/// The tunnels of one stream.
#[derive(Debug, Default)]
pub(super) struct Tunnels {
    tunnel_policy: TunnelPolicy,
    tunnels: BTreeMap<u32, Tunnel>,
    /// The tunnels that no stream has taken yet, in order.
    offered: VecDeque<u32>,
    /// How many tunnels the guest has opened.
    opened: u32,
    /// How many of them have not ended in the guest.
    live: usize,
    taker: Option<Waker>,
}

#[derive(Debug)]
struct Tunnel {
    outgoing: Outgoing,
    incoming: Incoming,
    guest: GuestSide,
    holder: TunnelHolder,
}

/// The state of a tunnel on the guest's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GuestSide {
    /// It may send content.
    Open,
    /// It sends no more content.
    Ended,
    /// It has sent everything and sends nothing more.
    Done,
    /// It sends nothing more, because the connection broke.
    Reset,
}

/// The holder of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TunnelHolder {
    /// No stream has taken it yet.
    Offered,
    /// A stream holds it.
    Stream,
    /// The stream was dropped. Content until `Done` is discarded.
    Nobody,
}

impl GuestSide {
    const fn is_closed(self) -> bool {
        matches!(self, Self::Done | Self::Reset)
    }
}

impl Tunnels {
    pub(super) fn new(tunnel_policy: TunnelPolicy) -> Self {
        Self { tunnel_policy, ..Self::default() }
    }

    /// Processes a frame of the guest. Adds the tasks to wake to `wakes`.
    pub(super) fn receive(&mut self, frame: Frame, wakes: &mut Vec<Waker>) -> Result<(), Violation> {
        let (id, kind) = (frame.channel, frame.kind);
        if kind == FrameKind::Tunnel {
            return self.opened(id, frame.credit()?, wakes);
        }
        if !matches!(kind, FrameKind::Data | FrameKind::Credit | FrameKind::Eof | FrameKind::Done) {
            return Err(Violation::Kind(kind));
        }
        let tunnel = self
            .tunnels
            .get_mut(&id)
            .filter(|tunnel| !tunnel.guest.is_closed())
            .ok_or(Violation::Channel { kind, channel: id })?;
        if tunnel.guest == GuestSide::Ended && matches!(kind, FrameKind::Data | FrameKind::Eof) {
            return Err(TunnelViolation::AfterEnd { kind, channel: id }.into());
        }
        match kind {
            FrameKind::Data => {
                let (stream, content) = frame.data()?;
                if stream != StreamId::Content {
                    return Err(TunnelViolation::Content { channel: id }.into());
                }
                if !tunnel.incoming.spend(content.len()) {
                    return Err(Violation::Credit(id));
                }
                if tunnel.holder == TunnelHolder::Stream {
                    tunnel.incoming.push(stream, frame.payload);
                    wakes.extend(tunnel.incoming.waiter.take());
                }
            }
            FrameKind::Credit => {
                if !tunnel.outgoing.granted(frame.credit()?) {
                    return Err(Violation::Grant(id));
                }
                wakes.extend(tunnel.outgoing.waiter.take());
            }
            FrameKind::Eof => {
                tunnel.guest = GuestSide::Ended;
                wakes.extend(tunnel.incoming.waiter.take());
            }
            _ => {
                if !frame.payload.is_empty() {
                    return Err(TunnelViolation::Content { channel: id }.into());
                }
                tunnel.guest =
                    if tunnel.guest == GuestSide::Ended { GuestSide::Done } else { GuestSide::Reset };
                tunnel.outgoing.close();
                wakes.extend(tunnel.outgoing.waiter.take());
                wakes.extend(tunnel.incoming.waiter.take());
                self.live -= 1;
                if tunnel.holder != TunnelHolder::Stream {
                    self.offered.retain(|offered| *offered != id);
                    self.tunnels.remove(&id);
                }
            }
        }
        Ok(())
    }

    fn opened(&mut self, id: u32, credit: u32, wakes: &mut Vec<Waker>) -> Result<(), Violation> {
        let next = u64::from(FIRST_TUNNEL) + u64::from(self.opened);
        if self.tunnel_policy == TunnelPolicy::Reject {
            return Err(TunnelViolation::NotAllowed.into());
        }
        if u64::from(id) != next {
            return Err(TunnelViolation::Number { channel: id, next }.into());
        }
        if self.live >= TUNNELS_MAX {
            return Err(TunnelViolation::TooMany.into());
        }
        self.opened += 1;
        self.live += 1;
        let tunnel = Tunnel {
            outgoing: Outgoing::new(None, credit, TUNNEL_WINDOW as usize),
            incoming: Incoming::default(),
            guest: GuestSide::Open,
            holder: TunnelHolder::Offered,
        };
        self.tunnels.insert(id, tunnel);
        self.offered.push_back(id);
        wakes.extend(self.taker.take());
        Ok(())
    }

    /// Data that must still be written for this tunnel.
    pub(super) fn outgoing(&mut self, id: u32) -> Option<&mut Outgoing> {
        self.tunnels.get_mut(&id).map(|tunnel| &mut tunnel.outgoing)
    }

    /// Takes the next offered tunnel. The caller must call [`Tunnels::release`] later.
    pub(super) fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<u32> {
        while let Some(id) = self.offered.pop_front() {
            let tunnel = self.tunnels.get_mut(&id).filter(|tunnel| tunnel.holder == TunnelHolder::Offered);
            if let Some(tunnel) = tunnel {
                tunnel.holder = TunnelHolder::Stream;
                return Poll::Ready(id);
            }
        }
        self.taker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Grants the guest this many more bytes. Returns whether the guest can send and a stream holds the tunnel.
    pub(super) fn grant(&mut self, id: u32, bytes: u32) -> bool {
        let is_read =
            |tunnel: &&mut Tunnel| tunnel.guest == GuestSide::Open && tunnel.holder == TunnelHolder::Stream;
        let Some(tunnel) = self.tunnels.get_mut(&id).filter(is_read) else { return false };
        tunnel.incoming.extend(bytes);
        tunnel.outgoing.grant = tunnel.outgoing.grant.saturating_add(bytes);
        true
    }

    pub(super) fn poll_read(&mut self, id: u32, cx: &mut Context<'_>) -> Poll<TunnelRead> {
        let Some(tunnel) = self.tunnels.get_mut(&id) else { return Poll::Ready(TunnelRead::Reset) };
        if let Some((_, bytes)) = tunnel.incoming.pop() {
            return Poll::Ready(TunnelRead::Bytes(bytes));
        }
        match tunnel.guest {
            GuestSide::Open => {
                tunnel.incoming.waiter = Some(cx.waker().clone());
                Poll::Pending
            }
            GuestSide::Ended | GuestSide::Done => Poll::Ready(TunnelRead::End),
            GuestSide::Reset => Poll::Ready(TunnelRead::Reset),
        }
    }

    /// Accepts as many of `bytes` as fit; `bytes` must not be empty. `None` if the guest accepts no more content.
    pub(super) fn poll_write(&mut self, id: u32, bytes: &[u8], cx: &mut Context<'_>) -> Poll<Option<usize>> {
        let Some(outgoing) = self.outgoing(id).filter(|outgoing| outgoing.is_open()) else {
            return Poll::Ready(None);
        };
        let length = outgoing.room().min(bytes.len());
        if length == 0 {
            outgoing.waiter = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let mut piece = Bytes::copy_from_slice(bytes.get(..length).unwrap_or_default());
        outgoing.accept(&mut piece);
        Poll::Ready(Some(length))
    }

    /// Called when the holder has dropped the tunnel.
    pub(super) fn release(&mut self, id: u32) {
        let Some(tunnel) = self.tunnels.get_mut(&id) else { return };
        if tunnel.guest.is_closed() {
            self.tunnels.remove(&id);
        } else {
            tunnel.holder = TunnelHolder::Nobody;
            tunnel.incoming.discard();
            tunnel.outgoing.release();
        }
    }

    /// Resets every tunnel, because the sandbox is lost. Content that has arrived can still be read.
    pub(super) fn fail(&mut self, wakes: &mut Vec<Waker>) {
        self.tunnel_policy = TunnelPolicy::Reject;
        self.offered.clear();
        self.live = 0;
        self.tunnels.retain(|_, tunnel| tunnel.holder == TunnelHolder::Stream);
        for tunnel in self.tunnels.values_mut() {
            if !tunnel.guest.is_closed() {
                tunnel.guest = GuestSide::Reset;
            }
            tunnel.outgoing.close();
            wakes.extend(tunnel.outgoing.waiter.take());
            wakes.extend(tunnel.incoming.waiter.take());
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.tunnels.len()
    }
}
