//! HTTP/1.1 as a proxy: `CONNECT`, requests with an absolute URL, and the responses of refusals.
//!
//! Each connection serves one request. The connection is closed after the response, which says so in advance (`Connection: close`).
//! Bytes after a request are never read as another request, so request smuggling is impossible.

use conjure_base::{Deadline, with_deadline};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::forward::forward_request;
use super::http_head::{RequestForm, RequestHead};
use super::read_head::HeadReadError;
use super::read_head::read_head;
use crate::proxy::connection::{ConnectionEnd, ProxyConnection};
use crate::proxy::tunnel;
use crate::refusal::{Refusal, RefusalReason};
use crate::target::Target;

/// The response to a `CONNECT` that opens the tunnel.
const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// Serves a client whose first byte was a letter. With `refusal`, it is refused for that reason.
pub(crate) async fn serve<S>(
    mut connection: ProxyConnection<'_, S>,
    refusal: Option<RefusalReason>,
    deadline: Deadline,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let ended = match refusal {
        Some(reason) => Err(reason.into()),
        None => run(&mut connection, deadline).await,
    };
    finish(&mut connection, ended).await;
}

/// Serves a client with a tunnel to `target`, where only HTTP for that host is allowed.
pub(crate) async fn serve_in_tunnel<S>(
    connection: &mut ProxyConnection<'_, S>,
    origin: TcpStream,
    target: Target,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let ended = run_in_tunnel(connection, origin, &target).await.map_err(|stop| match stop {
        ConnectionEnd::Refused(reason, None) => ConnectionEnd::Refused(reason, Some(target)),
        stop => stop,
    });
    finish(connection, ended).await;
}

/// Reports the end of a connection, and sends the response of a refusal.
async fn finish<S>(connection: &mut ProxyConnection<'_, S>, ended: Result<(), ConnectionEnd>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    match ended {
        Ok(()) => {}
        Err(ConnectionEnd::Io(error)) => tracing::debug!(%error, "a connection broke"),
        Err(ConnectionEnd::RefusedAfterResponse(reason, target)) => {
            connection.egress.report_refusal(reason, target.as_ref());
        }
        Err(ConnectionEnd::Refused(reason, target)) => {
            let refusal = connection.egress.report_refusal(reason, target.as_ref());
            connection.close_with(&refusal_response(&refusal)).await;
        }
    }
}

async fn run<S>(connection: &mut ProxyConnection<'_, S>, deadline: Deadline) -> Result<(), ConnectionEnd>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let head = read_request_head(connection, deadline).await?;
    if head.method == "CONNECT" {
        let target = head.connect_target()?;
        let origin = match connection.egress.connect_checked(&target).await {
            Ok(origin) => origin,
            Err(reason) => return Err(ConnectionEnd::Refused(reason, Some(target))),
        };
        connection.client.send(ESTABLISHED).await?;
        return tunnel::run(connection, origin, target).await;
    }
    let request = head.forward(RequestForm::AbsoluteUrl)?;
    match connection.egress.connect_checked(&request.target).await {
        Ok(origin) => forward_request(connection, origin, request).await,
        Err(reason) => Err(ConnectionEnd::Refused(reason, Some(request.target))),
    }
}

async fn run_in_tunnel<S>(
    connection: &mut ProxyConnection<'_, S>,
    origin: TcpStream,
    target: &Target,
) -> Result<(), ConnectionEnd>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    if connection.client.first_byte().await?.is_none() {
        return Ok(());
    }
    let clock = &**connection.egress.clock();
    let deadline = clock.deadline(connection.egress.limits().request_timeout);
    let head = read_request_head(connection, deadline).await?;
    if head.method == "CONNECT" {
        return Err(RefusalReason::MalformedRequest("a tunnel leads through a tunnel").into());
    }
    let request = head.forward(RequestForm::Tunnel(target))?;
    forward_request(connection, origin, request).await
}

async fn read_request_head<S>(
    connection: &mut ProxyConnection<'_, S>,
    deadline: Deadline,
) -> Result<RequestHead, ConnectionEnd>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let (clock, limits) = (&**connection.egress.clock(), connection.egress.limits());
    let buffer = &mut connection.client.reader;
    let timeout = limits.request_timeout;
    let length = with_deadline(clock, deadline, read_head(buffer, limits.max_head_bytes))
        .await
        .map_err(|_| RefusalReason::RequestTimedOut { timeout })?
        .map_err(|problem| match problem {
            HeadReadError::BadLine => {
                RefusalReason::MalformedRequest("a line does not end with CR LF").into()
            }
            HeadReadError::TooLong => RefusalReason::HeadTooLong { limit: limits.max_head_bytes }.into(),
            HeadReadError::Ended => RefusalReason::MalformedRequest("it ends early").into(),
            HeadReadError::Io(error) => ConnectionEnd::Io(error),
        })?;
    let head = RequestHead::parse(&buffer.data()[..length]);
    buffer.consume(length);
    Ok(head?)
}

/// The complete HTTP response that reports a refusal to the client.
pub(crate) fn refusal_response(refusal: &Refusal) -> Vec<u8> {
    let status = refusal.reason.status();
    let phrase = match status {
        400 => "Bad Request",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Forbidden",
    };
    let body = format!("conjure: {refusal}\n");
    let head = format!(
        "HTTP/1.1 {status} {phrase}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Proxy-Status: conjure; error={}\r\nConnection: close\r\n\r\n",
        body.len(),
        refusal.reason.proxy_status(),
    );
    (head + &body).into_bytes()
}
