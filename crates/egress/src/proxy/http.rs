//! HTTP/1.1 as a proxy speaks it: `CONNECT`, requests with an absolute URL, and how a refusal is answered.
//!
//! One request for each connection: after its answer the connection is closed, and says so beforehand (`Connection:
//! close`). Nothing that follows a request is read as another one, so there is no place for a smuggled one.

use conjure_base::Deadline;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::conversation::{Conversation, Stop};
use super::exchange::exchange;
use super::head::{HeadEnd, RequestHead, Route, find_end};
use super::peer::Inbox;
use super::tunnel;
use crate::refusal::{Reason, Refusal};
use crate::target::Target;
use crate::within::within;

/// The only answer to a `CONNECT` that opens the tunnel.
const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// Serves a client whose first byte was a letter. With `barred`, it is only told that.
pub(crate) async fn serve<S>(
    mut conversation: Conversation<'_, S>,
    barred: Option<Reason>,
    deadline: Deadline,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let ended = match barred {
        Some(reason) => Err(reason.into()),
        None => run(&mut conversation, deadline).await,
    };
    conclude(&mut conversation, ended).await;
}

/// Serves a client that has a tunnel to `target`, where only HTTP passes, for that host.
pub(crate) async fn serve_in_tunnel<S>(
    conversation: &mut Conversation<'_, S>,
    origin: TcpStream,
    target: Target,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let ended = run_in_tunnel(conversation, origin, &target).await.map_err(|stop| match stop {
        Stop::Refused(reason, None) => Stop::Refused(reason, Some(target)),
        stop => stop,
    });
    conclude(conversation, ended).await;
}

async fn conclude<S>(conversation: &mut Conversation<'_, S>, ended: Result<(), Stop>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    match ended {
        Ok(()) => {}
        Err(Stop::Broken(error)) => tracing::debug!(%error, "a connection broke"),
        Err(Stop::TooLate(reason, target)) => {
            conversation.egress.refused(reason, target.as_ref());
        }
        Err(Stop::Refused(reason, target)) => {
            let refusal = conversation.egress.refused(reason, target.as_ref());
            conversation.part(&refusal_answer(&refusal)).await;
        }
    }
}

async fn run<S>(conversation: &mut Conversation<'_, S>, deadline: Deadline) -> Result<(), Stop>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let head = request_head(conversation, deadline).await?;
    if head.method == "CONNECT" {
        let target = head.connect_target()?;
        let origin = match conversation.egress.reach(&target).await {
            Ok(origin) => origin,
            Err(reason) => return Err(Stop::Refused(reason, Some(target))),
        };
        conversation.client.say(ESTABLISHED).await?;
        return tunnel::run(conversation, origin, target).await;
    }
    let request = head.forward(Route::ByUrl)?;
    match conversation.egress.reach(&request.target).await {
        Ok(origin) => exchange(conversation, origin, request).await,
        Err(reason) => Err(Stop::Refused(reason, Some(request.target))),
    }
}

async fn run_in_tunnel<S>(
    conversation: &mut Conversation<'_, S>,
    origin: TcpStream,
    target: &Target,
) -> Result<(), Stop>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    if conversation.client.first_byte().await?.is_none() {
        return Ok(());
    }
    let clock = &**conversation.egress.clock();
    let deadline = clock.deadline(conversation.egress.bounds().request);
    let head = request_head(conversation, deadline).await?;
    if head.method == "CONNECT" {
        return Err(Reason::MalformedRequest("a tunnel leads through a tunnel").into());
    }
    let request = head.forward(Route::Tunnel(target))?;
    exchange(conversation, origin, request).await
}

async fn request_head<S>(
    conversation: &mut Conversation<'_, S>,
    deadline: Deadline,
) -> Result<RequestHead, Stop>
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
{
    let (clock, bounds) = (&**conversation.egress.clock(), conversation.egress.bounds());
    let inbox = &mut conversation.client.inbox;
    let waited = bounds.request;
    let length = within(clock, deadline, read_head(inbox, bounds.head_bytes))
        .await
        .map_err(|_| Reason::RequestTimedOut { waited })?
        .map_err(|problem| match problem {
            HeadProblem::BadLine => Reason::MalformedRequest("a line does not end with CR LF").into(),
            HeadProblem::TooLong => Reason::HeadTooLong { limit: bounds.head_bytes }.into(),
            HeadProblem::Ended => Reason::MalformedRequest("it ends early").into(),
            HeadProblem::Broken(error) => Stop::Broken(error),
        })?;
    let head = RequestHead::parse(&inbox.data()[..length]);
    inbox.consume(length);
    Ok(head?)
}

/// Why there is no head.
#[derive(Debug)]
pub(crate) enum HeadProblem {
    BadLine,
    TooLong,
    Ended,
    Broken(std::io::Error),
}

/// The length of the head at the front of the inbox, once all of it is there.
pub(crate) async fn read_head<R>(inbox: &mut Inbox<R>, limit: usize) -> Result<usize, HeadProblem>
where
    R: AsyncRead + Unpin,
{
    let mut seen = 0;
    loop {
        match find_end(inbox.data(), seen) {
            HeadEnd::At(length) if length <= limit => return Ok(length),
            HeadEnd::BadLine => return Err(HeadProblem::BadLine),
            HeadEnd::Unknown if inbox.data().len() < limit => {}
            HeadEnd::At(_) | HeadEnd::Unknown => return Err(HeadProblem::TooLong),
        }
        seen = inbox.data().len();
        if inbox.more().await.map_err(HeadProblem::Broken)? == 0 {
            return Err(HeadProblem::Ended);
        }
    }
}

/// The whole answer that tells a client of a refusal.
pub(crate) fn refusal_answer(refusal: &Refusal) -> Vec<u8> {
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
