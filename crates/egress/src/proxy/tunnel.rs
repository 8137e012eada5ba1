//! What a tunnel carries, held to what was asked for, and passed on.
//!
//! What the server sends passes at once, since some protocols let it speak first. What the client sends is held until
//! its first bytes are judged, by the table of [`crate::Policy`]; then it passes, too, unseen. The end of one
//! direction is passed on and does not end the other.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::conversation::{Conversation, Stop};
use super::hello::{ClientHello, HelloError, HelloReader};
use super::http;
use super::peer::{Inbox, Peer};
use super::pump::{Pump, PumpError};
use crate::egress::Egress;
use crate::host::Host;
use crate::refusal::{Excerpt, Reason};
use crate::target::Target;
use crate::within::within;

/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 22;

/// Alerts of TLS (RFC 8446, section 6).
const UNRECOGNIZED_NAME: u8 = 112;
const DECODE_ERROR: u8 = 50;
const HANDSHAKE_FAILURE: u8 = 40;

/// Carries what the client and the server say, until both have ended.
pub(crate) async fn run<S>(
    conversation: &mut Conversation<'_, S>,
    origin: TcpStream,
    target: Target,
) -> Result<(), Stop>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    if conversation.egress.demands_http(&target) {
        http::serve_in_tunnel(conversation, origin, target).await;
        return Ok(());
    }
    let mut origin = Peer::new(origin, conversation.activity, conversation.egress.bounds().buffer_bytes);
    match relay(conversation, &mut origin, &target).await {
        Err(Stop::Refused(reason, _)) => {
            // The server must not wait for what does not come.
            drop(origin);
            let refusal = conversation.egress.refused(reason, Some(&target));
            match alert(&refusal.reason) {
                Some(alert) => conversation.part(&alert).await,
                None => conversation.part(&[]).await,
            }
            Ok(())
        }
        other => other,
    }
}

async fn relay<S>(
    conversation: &mut Conversation<'_, S>,
    origin: &mut Peer<TcpStream>,
    target: &Target,
) -> Result<(), Stop>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let buffer_bytes = conversation.egress.bounds().buffer_bytes;
    let client = &mut conversation.client;
    let (from_origin, held) = origin.inbox.parts();
    let mut down = Pump::new(held, buffer_bytes);
    {
        let mut judged = pin!(judge(conversation.egress, &mut client.inbox, target));
        poll_fn(|context| {
            if let Poll::Ready(Err(error)) = poll_down(&mut down, context, from_origin, &mut client.writer) {
                return Poll::Ready(Err(error.into()));
            }
            judged.as_mut().poll(context)
        })
        .await?;
    }
    let (from_client, held) = client.inbox.parts();
    let mut up = Pump::new(held, buffer_bytes);
    let mut up_has_ended = false;
    poll_fn(|context| {
        if !up_has_ended {
            match up.poll(context, from_client, &mut origin.writer) {
                Poll::Pending => {}
                // A server that takes no more may still have something to say.
                Poll::Ready(Ok(()) | Err(PumpError::Receiver(_))) => up_has_ended = true,
                Poll::Ready(Err(PumpError::Sender(error))) => return Poll::Ready(Err(error)),
            }
        }
        match poll_down(&mut down, context, from_origin, &mut client.writer) {
            Poll::Ready(Ok(())) if !up_has_ended => Poll::Pending,
            polled => polled,
        }
    })
    .await?;
    Ok(())
}

/// Ready once the server has ended, or one of the two is gone.
fn poll_down<R, W>(
    down: &mut Pump,
    context: &mut Context<'_>,
    from_origin: &mut R,
    to_client: &mut W,
) -> Poll<io::Result<()>>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    down.poll(context, from_origin, to_client)
        .map_err(|(PumpError::Sender(error) | PumpError::Receiver(error))| error)
}

/// Waits for as much of what the client sends as it takes to let it pass.
async fn judge<R>(egress: &Egress, inbox: &mut Inbox<R>, target: &Target) -> Result<(), Stop>
where
    R: AsyncRead + Unpin,
{
    let limited = egress.policy().is_limited();
    if inbox.data().is_empty() && inbox.more().await? == 0 {
        // It only listens.
        return Ok(());
    }
    if inbox.data()[0] != HANDSHAKE {
        return if egress.demands_tls(target) { Err(Reason::NotTls.into()) } else { Ok(()) };
    }
    let (clock, waited) = (&**egress.clock(), egress.bounds().handshake);
    let hello = within(clock, clock.deadline(waited), read_hello(inbox, egress.bounds().handshake_bytes))
        .await
        .map_err(|_| Reason::HandshakeTimedOut { waited })??;
    match check(&hello, target, limited) {
        Ok(()) => Ok(()),
        Err(reason) => Err(reason.into()),
    }
}

async fn read_hello<R: AsyncRead + Unpin>(inbox: &mut Inbox<R>, limit: usize) -> Result<ClientHello, Stop> {
    let mut reader = HelloReader::new(limit);
    let mut read = 0;
    loop {
        let new = &inbox.data()[read..];
        read = inbox.data().len();
        match reader.read(new) {
            Ok(ClientHello::Incomplete) if read > limit => {
                return Err(Reason::HandshakeTooLong { limit }.into());
            }
            Ok(ClientHello::Incomplete) => {}
            Ok(hello) => return Ok(hello),
            Err(HelloError::Malformed(what)) => return Err(Reason::MalformedHandshake(what).into()),
            Err(HelloError::TooLong { limit }) => return Err(Reason::HandshakeTooLong { limit }.into()),
        }
        if inbox.more().await? == 0 {
            return Err(Reason::MalformedHandshake("it ends early").into());
        }
    }
}

/// The rows of the table that speak of TLS.
fn check(hello: &ClientHello, target: &Target, limited: bool) -> Result<(), Reason> {
    let named = match (hello, target.host()) {
        (ClientHello::Names(name), _) => name,
        (_, Host::Name(_)) if limited => return Err(Reason::NoServerName),
        _ => return Ok(()),
    };
    // A server name is ASCII; what we would have to map, a server may take for something else.
    let host = std::str::from_utf8(named)
        .ok()
        .filter(|name| name.is_ascii())
        .and_then(|name| Host::parse(name).ok());
    match target.host() {
        asked if host.as_ref() == Some(asked) => Ok(()),
        Host::Address(_) if !limited => Ok(()),
        _ => Err(Reason::OtherServerName { server_name: Excerpt::new(named) }),
    }
}

/// The alert that says it, as a record, where TLS was spoken.
fn alert(reason: &Reason) -> Option<[u8; 7]> {
    let description = match reason {
        Reason::OtherServerName { .. } | Reason::NoServerName => UNRECOGNIZED_NAME,
        Reason::MalformedHandshake(_) => DECODE_ERROR,
        Reason::HandshakeTooLong { .. } | Reason::HandshakeTimedOut { .. } => HANDSHAKE_FAILURE,
        _ => return None,
    };
    // Type alert, version TLS 1.2, two bytes: fatal, and what.
    Some([21, 3, 3, 0, 2, 2, description])
}
