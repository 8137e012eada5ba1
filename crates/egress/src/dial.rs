//! Connects to the first of several checked addresses that accepts.
//!
//! Addresses are tried in turn, with alternating families. Each attempt starts shortly after the one before it, or as soon as that
//! one has failed (RFC 8305, sections 4 and 5). The first connection wins, and the other attempts are dropped. Dropping the future
//! drops all of them. This module has no state.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use conjure_base::Clock;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;

/// The delay until the next attempt starts beside the current one (RFC 8305, section 5, "Connection Attempt Delay").
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Connects to the first of `addresses` that accepts. The error is that of the last attempt that failed.
pub(crate) async fn dial(
    addresses: Vec<SocketAddr>,
    clock: &dyn Clock,
) -> io::Result<(TcpStream, SocketAddr)> {
    let mut waiting = interleave_families(addresses).into_iter();
    let mut attempts = FuturesUnordered::new();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "there is no address");
    loop {
        if let Some(address) = waiting.next() {
            attempts.push(connect(address));
        }
        if attempts.is_empty() {
            return Err(last);
        }
        let head_start = clock.sleep_until(clock.deadline(ATTEMPT_DELAY));
        tokio::select! {
            Some(attempted) = attempts.next() => match attempted {
                Ok(connected) => return Ok(connected),
                Err(error) => last = error,
            },
            () = head_start, if waiting.len() > 0 => {}
        }
    }
}

async fn connect(address: SocketAddr) -> io::Result<(TcpStream, SocketAddr)> {
    let stream = TcpStream::connect(address).await?;
    // This affects only the latency: a connection without it works.
    let _ = stream.set_nodelay(true);
    Ok((stream, address))
}

/// The addresses with alternating families, starting with the family of the first one.
fn interleave_families(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (front, back): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
    let (mut front, mut back) = (front.into_iter(), back.into_iter());
    let mut all = Vec::with_capacity(front.len() + back.len());
    loop {
        let (one, other) = (front.next(), back.next());
        if one.is_none() && other.is_none() {
            return all;
        }
        all.extend(one.into_iter().chain(other));
    }
}

/// Whether `address` is one of this machine's own: then a packet to it would also have it as the source address. This asks the
/// kernel's routing table and sends nothing.
pub(crate) fn is_own_address(address: IpAddr) -> bool {
    let any: SocketAddr = match address {
        IpAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        IpAddr::V6(_) => ([0u16; 8], 0).into(),
    };
    let sender = UdpSocket::bind(any).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    // Without a route the address belongs to no reachable machine, and the attempt will fail.
    sender.is_ok_and(|sender| sender.ip() == address)
}

#[cfg(test)]
mod tests;
