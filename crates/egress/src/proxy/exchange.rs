//! One request to a server, and its answer: each passed on as it comes, the request's body and the answer at the same
//! time.
//!
//! Once the answer is there, the exchange is over, whether or not the server has taken the whole body (it may refuse it
//! at its head). Dropping the future drops both connections.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::body::{BodyError, pass_on};
use super::conversation::{Conversation, Stop};
use super::head::{Answer, Forward, Version};
use super::http::{HeadProblem, read_head};
use super::peer::{Inbox, Peer};
use crate::refusal::Reason;

/// The most interim answers (`100 Continue` and its kin) before an answer.
const MOST_INTERIM_ANSWERS: usize = 16;

/// Sends the request on, and its answer back; then hangs up on the client, as it was told.
pub(crate) async fn exchange<S>(
    conversation: &mut Conversation<'_, S>,
    origin: TcpStream,
    request: Forward,
) -> Result<(), Stop>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let bounds = conversation.egress.bounds();
    let mut origin = Peer::new(origin, conversation.activity, bounds.buffer_bytes);
    let answering = AtomicBool::new(false);
    let outcome = {
        let client = &mut conversation.client;
        let mut sent = pin!(send(&mut client.inbox, &mut origin.writer, &request));
        let mut answered =
            pin!(answer(&mut origin.inbox, &mut client.writer, &request, bounds.head_bytes, &answering));
        tokio::select! {
            biased;
            outcome = &mut answered => outcome,
            Err(stop) = &mut sent => Err(stop),
        }
    };
    let target = Some(request.target);
    match outcome {
        Ok(()) => {
            drop(origin);
            conversation.part(&[]).await;
            Ok(())
        }
        Err(Stop::Refused(reason, _) | Stop::TooLate(reason, _)) if answering.load(Ordering::Relaxed) => {
            Err(Stop::TooLate(reason, target))
        }
        Err(Stop::Refused(reason, _)) => Err(Stop::Refused(reason, target)),
        Err(stop) => Err(stop),
    }
}

/// Sends the request on. Resolves only by an error: when all is sent, the answer is awaited, and it is noticed if the
/// client is gone meanwhile.
async fn send<R, W>(client: &mut Inbox<R>, origin: &mut W, request: &Forward) -> Result<(), Stop>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let sent = match origin.write_all(&request.head).await {
        Ok(()) => pass_on(client, origin, request.length, Version::Http11).await,
        Err(error) => Err(BodyError::Sink(error)),
    };
    match sent {
        // A server that takes no more may have answered.
        Ok(()) | Err(BodyError::Sink(_)) => {}
        Err(BodyError::Malformed(what)) => return Err(Reason::MalformedRequest(what).into()),
        Err(BodyError::Source(error)) => return Err(error.into()),
    }
    if client.data().is_empty() {
        // The end of the stream is none of the client: it may say no more and still listen.
        client.more().await?;
    }
    std::future::pending().await
}

/// Passes the answer back. `answering` says whether a part of it has gone out, so that nothing else can be said.
async fn answer<R, W>(
    origin: &mut Inbox<R>,
    client: &mut W,
    request: &Forward,
    head_bytes: usize,
    answering: &AtomicBool,
) -> Result<(), Stop>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    for _ in 0..=MOST_INTERIM_ANSWERS {
        let length = read_head(origin, head_bytes).await.map_err(|problem| match problem {
            HeadProblem::BadLine => Reason::MalformedAnswer("a line does not end with CR LF"),
            HeadProblem::TooLong => Reason::MalformedAnswer("its head is too long"),
            HeadProblem::Ended | HeadProblem::Broken(_) => {
                Reason::MalformedAnswer("it ends before its head does")
            }
        })?;
        let answer = Answer::parse(&origin.data()[..length], request)?;
        origin.consume(length);
        if answer.status == 101 {
            return Err(Reason::MalformedAnswer("it switches to a protocol that nobody asked for").into());
        }
        if answer.status < 200 {
            if request.version == Version::Http11 {
                answering.store(true, Ordering::Relaxed);
                client.write_all(&answer.head).await?;
                client.flush().await?;
                answering.store(false, Ordering::Relaxed);
            }
            continue;
        }
        answering.store(true, Ordering::Relaxed);
        client.write_all(&answer.head).await?;
        return match pass_on(origin, client, answer.length, request.version).await {
            Ok(()) => Ok(()),
            Err(BodyError::Malformed(what)) => Err(Reason::MalformedAnswer(what).into()),
            Err(BodyError::Source(error) | BodyError::Sink(error)) => Err(error.into()),
        };
    }
    Err(Reason::MalformedAnswer("it has too many interim answers").into())
}
