//! SOCKS5 (RFC 1928) without authentication: CONNECT, by name or address.
//!
//! BIND and UDP ASSOCIATE are refused by their reply code: nothing may connect into a sandbox, and datagrams would need
//! checks of their own. The success reply names no address of the host.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

use conjure_base::Deadline;
use tokio::io::{AsyncRead, AsyncWrite};

use super::conversation::{Conversation, Stop};
use super::peer::Inbox;
use super::tunnel;
use crate::host::Host;
use crate::refusal::{Excerpt, Reason};
use crate::target::{Target, TargetError};
use crate::within::within;

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const SUCCEEDED: u8 = 0;

/// What was read, and how many bytes it took; `None` while there is too little of it.
type Parsed<T> = Result<Option<(T, usize)>, Reason>;

/// How far the client has got, which decides how it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Greeting,
    Request,
    Tunnel,
}

/// Serves a client whose first byte was 5. With `barred`, it is only told that.
pub(crate) async fn serve<S>(
    mut conversation: Conversation<'_, S>,
    barred: Option<Reason>,
    deadline: Deadline,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let mut stage = Stage::Greeting;
    let ended = match barred {
        Some(reason) => Err(reason.into()),
        None => run(&mut conversation, &mut stage, deadline).await,
    };
    match ended {
        Ok(()) => {}
        Err(Stop::Broken(error)) => tracing::debug!(%error, "a connection broke"),
        Err(Stop::TooLate(reason, target)) => {
            conversation.egress.refused(reason, target.as_ref());
        }
        Err(Stop::Refused(reason, target)) => {
            let refusal = conversation.egress.refused(reason, target.as_ref());
            match stage {
                Stage::Greeting => conversation.part(&[VERSION, NO_ACCEPTABLE_METHOD]).await,
                Stage::Request => conversation.part(&reply(refusal.reason.socks_reply())).await,
                Stage::Tunnel => {}
            }
        }
    }
}

async fn run<S>(
    conversation: &mut Conversation<'_, S>,
    stage: &mut Stage,
    deadline: Deadline,
) -> Result<(), Stop>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let egress = conversation.egress;
    let (clock, waited) = (&**egress.clock(), egress.bounds().request);
    let target = within(clock, deadline, async {
        read(&mut conversation.client.inbox, greeting).await?;
        conversation.client.say(&[VERSION, NO_AUTHENTICATION]).await?;
        *stage = Stage::Request;
        read(&mut conversation.client.inbox, request).await
    })
    .await
    .map_err(|_| Reason::RequestTimedOut { waited })??;
    let origin = match egress.reach(&target).await {
        Ok(origin) => origin,
        Err(reason) => return Err(Stop::Refused(reason, Some(target))),
    };
    *stage = Stage::Tunnel;
    conversation.client.say(&reply(SUCCEEDED)).await?;
    tunnel::run(conversation, origin, target).await
}

/// A reply with no address: where the host's end of the connection is, is not for the client.
const fn reply(code: u8) -> [u8; 10] {
    [VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

async fn read<R, T>(inbox: &mut Inbox<R>, parse: fn(&[u8]) -> Parsed<T>) -> Result<T, Stop>
where
    R: AsyncRead + Unpin,
{
    loop {
        if let Some((value, used)) = parse(inbox.data())? {
            inbox.consume(used);
            return Ok(value);
        }
        if inbox.more().await? == 0 {
            return Err(Reason::MalformedSocks("it ends early").into());
        }
    }
}

/// `VER NMETHODS METHODS`, which must offer to go without authentication.
fn greeting(bytes: &[u8]) -> Parsed<()> {
    let [version, count, rest @ ..] = bytes else { return Ok(None) };
    if *version != VERSION {
        return Err(Reason::SocksVersion { version: *version });
    }
    let Some(methods) = rest.get(..usize::from(*count)) else { return Ok(None) };
    if !methods.contains(&NO_AUTHENTICATION) {
        return Err(Reason::SocksAuthentication);
    }
    Ok(Some(((), 2 + methods.len())))
}

/// `VER CMD RSV ATYP ADDR PORT`.
fn request(bytes: &[u8]) -> Parsed<Target> {
    let [version, command, reserved, address_type, rest @ ..] = bytes else { return Ok(None) };
    if *version != VERSION {
        return Err(Reason::SocksVersion { version: *version });
    }
    if *command != CONNECT {
        return Err(Reason::SocksCommand { command: *command });
    }
    if *reserved != 0 {
        return Err(Reason::MalformedSocks("a reserved byte is not zero"));
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
            (domain(name), port)
        }
        4 => match rest.split_first_chunk::<16>() {
            Some((address, port)) => (Ok(Host::from(std::net::IpAddr::from(Ipv6Addr::from(*address)))), port),
            None => return Ok(None),
        },
        other => return Err(Reason::SocksAddressType { address_type: *other }),
    };
    let Some((port_bytes, behind)) = port.split_first_chunk::<2>() else { return Ok(None) };
    let host = host?;
    let Some(port) = NonZeroU16::new(u16::from_be_bytes(*port_bytes)) else {
        return Err(Reason::NoTarget { asked: Excerpt::new(host.to_string()), problem: TargetError::Port });
    };
    Ok(Some((Target::new(host, port), bytes.len() - behind.len())))
}

/// Clients also write an address here as text; it is an address then.
fn domain(name: &[u8]) -> Result<Host, Reason> {
    let problem = match std::str::from_utf8(name) {
        Ok(text) => match Host::parse(text) {
            Ok(host) => return Ok(host),
            Err(problem) => problem,
        },
        Err(_) => crate::host::HostError::International,
    };
    Err(Reason::NoTarget { asked: Excerpt::new(name), problem: problem.into() })
}

#[cfg(test)]
mod tests;
