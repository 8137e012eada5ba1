//! A tunnel: checks what the client sends first, and relays the rest.
//!
//! Bytes of the server are relayed at once, since in some protocols it speaks first. Bytes of the client are held until its first
//! bytes are checked by the table of [`crate::EgressPolicy`]; the rest is relayed unseen. The end of one direction is passed on and
//! does not end the other.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use conjure_base::with_deadline;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::buffered::{BufferedStream, ReadBuffer};
use super::connection::{ConnectionEnd, ProxyConnection};
use super::half_copy::{CopyError, HalfCopy};
use super::tls_client_hello::{ClientHello, HelloError, HelloReader};
use crate::egress::Egress;
use crate::host::Host;
use crate::proxy::http_proxy::http;
use crate::refusal::{EscapedExcerpt, RefusalReason};
use crate::target::Target;

/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 22;

/// Alerts of TLS (RFC 8446, section 6).
const UNRECOGNIZED_NAME: u8 = 112;
const DECODE_ERROR: u8 = 50;
const HANDSHAKE_FAILURE: u8 = 40;

/// Relays data between client and server until both have closed.
pub(crate) async fn run<S>(
    connection: &mut ProxyConnection<'_, S>,
    origin: TcpStream,
    target: Target,
) -> Result<(), ConnectionEnd>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    if connection.egress.requires_http(&target) {
        http::serve_in_tunnel(connection, origin, target).await;
        return Ok(());
    }
    let mut origin =
        BufferedStream::new(origin, connection.idle_timeout, connection.egress.limits().buffer_bytes);
    match relay(connection, &mut origin, &target).await {
        Err(ConnectionEnd::Refused(reason, _)) => {
            // Closes the connection to the server, so that the server does not wait for data that will never come.
            drop(origin);
            let refusal = connection.egress.report_refusal(reason, Some(&target));
            match tls_alert(&refusal.reason) {
                Some(alert) => connection.close_with(&alert).await,
                None => connection.close_with(&[]).await,
            }
            Ok(())
        }
        other => other,
    }
}

async fn relay<S>(
    connection: &mut ProxyConnection<'_, S>,
    origin: &mut BufferedStream<TcpStream>,
    target: &Target,
) -> Result<(), ConnectionEnd>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let buffer_bytes = connection.egress.limits().buffer_bytes;
    let client = &mut connection.client;
    let (from_origin, held) = origin.reader.take();
    let mut down = HalfCopy::new(held, buffer_bytes);
    {
        let mut inspection = pin!(inspect_first_bytes(connection.egress, &mut client.reader, target));
        poll_fn(|context| {
            if let Poll::Ready(Err(error)) =
                poll_server_to_client(&mut down, context, from_origin, &mut client.writer)
            {
                return Poll::Ready(Err(error.into()));
            }
            inspection.as_mut().poll(context)
        })
        .await?;
    }
    let (from_client, held) = client.reader.take();
    let mut up = HalfCopy::new(held, buffer_bytes);
    let mut up_has_ended = false;
    poll_fn(|context| {
        if !up_has_ended {
            match up.poll(context, from_client, &mut origin.writer) {
                Poll::Pending => {}
                // A server that has stopped reading may still send data.
                Poll::Ready(Ok(()) | Err(CopyError::Write(_))) => up_has_ended = true,
                Poll::Ready(Err(CopyError::Read(error))) => return Poll::Ready(Err(error)),
            }
        }
        match poll_server_to_client(&mut down, context, from_origin, &mut client.writer) {
            Poll::Ready(Ok(())) if !up_has_ended => Poll::Pending,
            polled => polled,
        }
    })
    .await?;
    Ok(())
}

/// Ready once the server has closed, or one of the two has failed.
fn poll_server_to_client<R, W>(
    down: &mut HalfCopy,
    context: &mut Context<'_>,
    from_origin: &mut R,
    to_client: &mut W,
) -> Poll<io::Result<()>>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    down.poll(context, from_origin, to_client)
        .map_err(|(CopyError::Read(error) | CopyError::Write(error))| error)
}

/// Reads as many of the client's bytes as the check needs.
async fn inspect_first_bytes<R>(
    egress: &Egress,
    buffer: &mut ReadBuffer<R>,
    target: &Target,
) -> Result<(), ConnectionEnd>
where
    R: AsyncRead + Unpin,
{
    let limited = egress.policy().is_limited();
    if buffer.data().is_empty() && buffer.fill().await? == 0 {
        // The client sends nothing and only reads.
        return Ok(());
    }
    if buffer.data()[0] != HANDSHAKE {
        return if egress.requires_tls(target) { Err(RefusalReason::NotTls.into()) } else { Ok(()) };
    }
    let (clock, timeout) = (&**egress.clock(), egress.limits().handshake_timeout);
    let hello = with_deadline(
        clock,
        clock.deadline(timeout),
        read_hello(buffer, egress.limits().max_handshake_bytes),
    )
    .await
    .map_err(|_| RefusalReason::HandshakeTimedOut { timeout })??;
    match check_server_name(&hello, target, limited) {
        Ok(()) => Ok(()),
        Err(reason) => Err(reason.into()),
    }
}

async fn read_hello<R: AsyncRead + Unpin>(
    buffer: &mut ReadBuffer<R>,
    limit: usize,
) -> Result<ClientHello, ConnectionEnd> {
    let mut reader = HelloReader::new(limit);
    let mut read = 0;
    loop {
        let new = &buffer.data()[read..];
        read = buffer.data().len();
        match reader.read(new) {
            Ok(ClientHello::Incomplete) if read > limit => {
                return Err(RefusalReason::HandshakeTooLong { limit }.into());
            }
            Ok(ClientHello::Incomplete) => {}
            Ok(hello) => return Ok(hello),
            Err(HelloError::Malformed(what)) => return Err(RefusalReason::MalformedHandshake(what).into()),
            Err(HelloError::TooLong { limit }) => {
                return Err(RefusalReason::HandshakeTooLong { limit }.into());
            }
        }
        if buffer.fill().await? == 0 {
            return Err(RefusalReason::MalformedHandshake("it ends early").into());
        }
    }
}

/// Checks the TLS rows of the table of [`crate::EgressPolicy`].
fn check_server_name(hello: &ClientHello, target: &Target, limited: bool) -> Result<(), RefusalReason> {
    let named = match (hello, target.host()) {
        (ClientHello::Sni(name), _) => name,
        (_, Host::Name(_)) if limited => return Err(RefusalReason::NoServerName),
        _ => return Ok(()),
    };
    // A server name is ASCII. A server may understand a name that needs IDNA mapping differently.
    let host = std::str::from_utf8(named)
        .ok()
        .filter(|name| name.is_ascii())
        .and_then(|name| Host::parse(name).ok());
    match target.host() {
        requested if host.as_ref() == Some(requested) => Ok(()),
        Host::Address(_) if !limited => Ok(()),
        _ => Err(RefusalReason::ServerNameMismatch { server_name: EscapedExcerpt::new(named) }),
    }
}

/// The TLS alert of a refusal as a record; `None` where the client does not speak TLS.
fn tls_alert(reason: &RefusalReason) -> Option<[u8; 7]> {
    let description = match reason {
        RefusalReason::ServerNameMismatch { .. } | RefusalReason::NoServerName => UNRECOGNIZED_NAME,
        RefusalReason::MalformedHandshake(_) => DECODE_ERROR,
        RefusalReason::HandshakeTooLong { .. } | RefusalReason::HandshakeTimedOut { .. } => HANDSHAKE_FAILURE,
        _ => return None,
    };
    // Record type alert, version TLS 1.2, length two: the level (fatal) and the description.
    Some([21, 3, 3, 0, 2, 2, description])
}
