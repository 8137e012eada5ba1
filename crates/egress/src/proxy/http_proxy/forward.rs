//! Forwards one HTTP request and its response. The request's body and the response are copied at the same time.
//!
//! Once the response is complete, the exchange ends, even if the server has not read the whole body: a server may
//! refuse a request after its head. Dropping the future drops both connections.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::http_body::{BodyError, copy_body};
use super::http_framing::Version;
use super::http_head::{ForwardedRequest, ResponseHead};
use super::read_head::HeadReadError;
use super::read_head::read_head;
use crate::proxy::buffered::{BufferedStream, ReadBuffer};
use crate::proxy::connection::{ConnectionEnd, ProxyConnection};
use crate::refusal::RefusalReason;

/// The maximum number of interim responses (such as `100 Continue`) before the final one.
const MAX_INTERIM_RESPONSES: usize = 16;

/// Sends the request to the server and its response to the client, and closes the client's connection.
pub(crate) async fn forward_request<S>(
    connection: &mut ProxyConnection<'_, S>,
    origin: TcpStream,
    request: ForwardedRequest,
) -> Result<(), ConnectionEnd>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let limits = connection.egress.limits();
    let mut origin = BufferedStream::new(origin, connection.idle_timeout, limits.buffer_bytes);
    let has_responded = AtomicBool::new(false);
    let outcome = {
        let client = &mut connection.client;
        let mut sent = pin!(send_request(&mut client.reader, &mut origin.writer, &request));
        let mut response = pin!(relay_response(
            &mut origin.reader,
            &mut client.writer,
            &request,
            limits.max_head_bytes,
            &has_responded
        ));
        tokio::select! {
            biased;
            outcome = &mut response => outcome,
            Err(stop) = &mut sent => Err(stop),
        }
    };
    let target = Some(request.target);
    match outcome {
        Ok(()) => {
            drop(origin);
            connection.close_with(&[]).await;
            Ok(())
        }
        Err(ConnectionEnd::Refused(reason, _) | ConnectionEnd::RefusedAfterResponse(reason, _))
            if has_responded.load(Ordering::Relaxed) =>
        {
            Err(ConnectionEnd::RefusedAfterResponse(reason, target))
        }
        Err(ConnectionEnd::Refused(reason, _)) => Err(ConnectionEnd::Refused(reason, target)),
        Err(stop) => Err(stop),
    }
}

/// Sends the request to the server.
///
/// Resolves only with an error. When the whole request is sent, it reads from the client, to notice that the client
/// has disconnected.
async fn send_request<R, W>(
    client: &mut ReadBuffer<R>,
    origin: &mut W,
    request: &ForwardedRequest,
) -> Result<(), ConnectionEnd>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let sent = match origin.write_all(&request.head).await {
        Ok(()) => copy_body(client, origin, request.length, Version::Http11).await,
        Err(error) => Err(BodyError::Write(error)),
    };
    match sent {
        // A server that has stopped reading may have sent a response.
        Ok(()) | Err(BodyError::Write(_)) => {}
        Err(BodyError::Malformed(what)) => return Err(RefusalReason::MalformedRequest(what).into()),
        Err(BodyError::Read(error)) => return Err(error.into()),
    }
    if client.data().is_empty() {
        // The end of the stream does not mean that the client has disconnected: it may have stopped sending and still
        // read.
        client.fill().await?;
    }
    std::future::pending().await
}

/// Copies the response to the client. While `has_responded` is true, a part of a response was sent, and no other
/// response can be sent.
async fn relay_response<R, W>(
    origin: &mut ReadBuffer<R>,
    client: &mut W,
    request: &ForwardedRequest,
    head_bytes: usize,
    has_responded: &AtomicBool,
) -> Result<(), ConnectionEnd>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    for _ in 0..=MAX_INTERIM_RESPONSES {
        let length = read_head(origin, head_bytes).await.map_err(|problem| match problem {
            HeadReadError::BadLine => RefusalReason::MalformedResponse("a line does not end with CR LF"),
            HeadReadError::TooLong => RefusalReason::MalformedResponse("its head is too long"),
            HeadReadError::Ended | HeadReadError::Io(_) => {
                RefusalReason::MalformedResponse("it ends before its head does")
            }
        })?;
        let answer = ResponseHead::parse(&origin.data()[..length], request)?;
        origin.consume(length);
        if answer.status == 101 {
            return Err(RefusalReason::MalformedResponse(
                "it switches to a protocol that the client did not request",
            )
            .into());
        }
        if answer.status < 200 {
            if request.version == Version::Http11 {
                has_responded.store(true, Ordering::Relaxed);
                client.write_all(&answer.head).await?;
                client.flush().await?;
                has_responded.store(false, Ordering::Relaxed);
            }
            continue;
        }
        has_responded.store(true, Ordering::Relaxed);
        client.write_all(&answer.head).await?;
        return match copy_body(origin, client, answer.length, request.version).await {
            Ok(()) => Ok(()),
            Err(BodyError::Malformed(what)) => Err(RefusalReason::MalformedResponse(what).into()),
            Err(BodyError::Read(error) | BodyError::Write(error)) => Err(error.into()),
        };
    }
    Err(RefusalReason::MalformedResponse("it has too many interim answers").into())
}
