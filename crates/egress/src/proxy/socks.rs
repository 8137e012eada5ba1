//! SOCKS5 (RFC 1928) without authentication: CONNECT, by name or address.
//!
//! BIND and UDP ASSOCIATE are refused by their reply code: nothing may connect into a sandbox, and datagrams would need separate
//! checks. The success reply contains no address of this machine.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

use conjure_base::{Deadline, with_deadline};
use tokio::io::{AsyncRead, AsyncWrite};

use super::buffered::ReadBuffer;
use super::connection::{ConnectionEnd, ProxyConnection};
use super::tunnel;
use crate::host::Host;
use crate::refusal::{EscapedExcerpt, RefusalReason};
use crate::target::{Target, TargetError};

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const SUCCEEDED: u8 = 0;

/// A parsed value and its length in bytes; `None` while bytes are missing.
type Parsed<T> = Result<Option<(T, usize)>, RefusalReason>;

/// How far the client has got, which decides how it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Greeting,
    Request,
    Tunnel,
}

/// Serves a client whose first byte was 5. With `refusal`, it is refused for that reason.
pub(crate) async fn serve<S>(
    mut connection: ProxyConnection<'_, S>,
    refusal: Option<RefusalReason>,
    deadline: Deadline,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let mut stage = Stage::Greeting;
    let ended = match refusal {
        Some(reason) => Err(reason.into()),
        None => run(&mut connection, &mut stage, deadline).await,
    };
    match ended {
        Ok(()) => {}
        Err(ConnectionEnd::Io(error)) => tracing::debug!(%error, "a connection broke"),
        Err(ConnectionEnd::RefusedAfterResponse(reason, target)) => {
            connection.egress.report_refusal(reason, target.as_ref());
        }
        Err(ConnectionEnd::Refused(reason, target)) => {
            let refusal = connection.egress.report_refusal(reason, target.as_ref());
            match stage {
                Stage::Greeting => connection.close_with(&[VERSION, NO_ACCEPTABLE_METHOD]).await,
                Stage::Request => connection.close_with(&reply(refusal.reason.socks_reply())).await,
                Stage::Tunnel => {}
            }
        }
    }
}

async fn run<S>(
    connection: &mut ProxyConnection<'_, S>,
    stage: &mut Stage,
    deadline: Deadline,
) -> Result<(), ConnectionEnd>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let egress = connection.egress;
    let (clock, timeout) = (&**egress.clock(), egress.limits().request_timeout);
    let target = with_deadline(clock, deadline, async {
        read_message(&mut connection.client.reader, parse_greeting).await?;
        connection.client.send(&[VERSION, NO_AUTHENTICATION]).await?;
        *stage = Stage::Request;
        read_message(&mut connection.client.reader, parse_request).await
    })
    .await
    .map_err(|_| RefusalReason::RequestTimedOut { timeout })??;
    let origin = match egress.connect_checked(&target).await {
        Ok(origin) => origin,
        Err(reason) => return Err(ConnectionEnd::Refused(reason, Some(target))),
    };
    *stage = Stage::Tunnel;
    connection.client.send(&reply(SUCCEEDED)).await?;
    tunnel::run(connection, origin, target).await
}

/// A reply without an address: the client must not learn this machine's address.
const fn reply(code: u8) -> [u8; 10] {
    [VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

async fn read_message<R, T>(
    buffer: &mut ReadBuffer<R>,
    parse: fn(&[u8]) -> Parsed<T>,
) -> Result<T, ConnectionEnd>
where
    R: AsyncRead + Unpin,
{
    loop {
        if let Some((value, used)) = parse(buffer.data())? {
            buffer.consume(used);
            return Ok(value);
        }
        if buffer.fill().await? == 0 {
            return Err(RefusalReason::MalformedSocks("it ends early").into());
        }
    }
}

/// Parses `VER NMETHODS METHODS`, which must offer "no authentication".
fn parse_greeting(bytes: &[u8]) -> Parsed<()> {
    let [version, count, rest @ ..] = bytes else { return Ok(None) };
    if *version != VERSION {
        return Err(RefusalReason::SocksVersion { version: *version });
    }
    let Some(methods) = rest.get(..usize::from(*count)) else { return Ok(None) };
    if !methods.contains(&NO_AUTHENTICATION) {
        return Err(RefusalReason::SocksAuthentication);
    }
    Ok(Some(((), 2 + methods.len())))
}

/// Parses `VER CMD RSV ATYP ADDR PORT`.
fn parse_request(bytes: &[u8]) -> Parsed<Target> {
    let [version, command, reserved, address_type, rest @ ..] = bytes else { return Ok(None) };
    if *version != VERSION {
        return Err(RefusalReason::SocksVersion { version: *version });
    }
    if *command != CONNECT {
        return Err(RefusalReason::SocksCommand { command: *command });
    }
    if *reserved != 0 {
        return Err(RefusalReason::MalformedSocks("a reserved byte is not zero"));
    }
    let (host, port) = match address_type {
        1 => match rest {
            [a, b, c, d, port @ ..] => {
                (Ok(Host::from(std::net::IpAddr::from(Ipv4Addr::new(*a, *b, *c, *d)))), port)
            }
            _ => return Ok(None),
        },
        3 => {
            let [length, rest @ ..] = rest else { return Ok(None) };
            let Some((name, port)) = rest.split_at_checked(usize::from(*length)) else { return Ok(None) };
            (parse_domain(name), port)
        }
        4 => match rest.split_first_chunk::<16>() {
            Some((address, port)) => (Ok(Host::from(std::net::IpAddr::from(Ipv6Addr::from(*address)))), port),
            None => return Ok(None),
        },
        other => return Err(RefusalReason::SocksAddressType { address_type: *other }),
    };
    let Some((port_bytes, behind)) = port.split_first_chunk::<2>() else { return Ok(None) };
    let host = host?;
    let Some(port) = NonZeroU16::new(u16::from_be_bytes(*port_bytes)) else {
        return Err(RefusalReason::InvalidTarget {
            requested: EscapedExcerpt::new(host.to_string()),
            problem: TargetError::Port,
        });
    };
    Ok(Some((Target::new(host, port), bytes.len() - behind.len())))
}

/// Parses a domain name. Some clients send an address as text here, which counts as an address.
fn parse_domain(name: &[u8]) -> Result<Host, RefusalReason> {
    let problem = match std::str::from_utf8(name) {
        Ok(text) => match Host::parse(text) {
            Ok(host) => return Ok(host),
            Err(problem) => problem,
        },
        Err(_) => crate::host::HostError::International,
    };
    Err(RefusalReason::InvalidTarget { requested: EscapedExcerpt::new(name), problem: problem.into() })
}

#[cfg(test)]
mod tests;
