//! A web service over the runtime: `POST /sessions` opens one, `POST /sessions/ID` says something, `GET /sessions/ID/events`
//! is a stream of server-sent events, which a browser takes up again where it broke off (`Last-Event-ID`).
//!
//! ```text
//! cargo run --example event_stream                 # asks itself, and ends
//! cargo run --example event_stream 127.0.0.1:8080  # serves
//!   curl -X POST localhost:8080/sessions; curl -d 'Hello!' localhost:8080/sessions/ses_…; curl localhost:8080/sessions/ses_…/events
//! ```
//!
//! It is written on `hyper` as it is, so that no framework is needed to read it; in another one the same calls are made. The
//! tenant would come from who is logged in; here there is one. Nothing about a session lives in this service: with a data folder in
//! its configuration the same addresses work after a restart. Here all is in memory.

use std::convert::Infallible;
use std::error::Error;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use conjure::{
    Clock as _, Config, Message, Runtime, RuntimeError, RuntimeOptions, Session, SessionSpec, SystemClock,
    TenantId, Update, model_fn, parse_response,
};
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// What a user may say at once.
const LONGEST: usize = 64 << 10;

fn answer(status: StatusCode, text: impl Into<String>) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(text.into())).boxed_unsync());
    *response.status_mut() = status;
    response
}

/// What a user is told of a failure: only whether trying again may help. The failure itself, which may name folders, other
/// processes and hosts, is for the log.
fn refused(error: &RuntimeError) -> Answer {
    if let RuntimeError::NotFound { .. } = error {
        return answer(StatusCode::NOT_FOUND, "there is no such session\n");
    }
    let _ = writeln!(std::io::stderr(), "{error}");
    if error.is_retryable() {
        let mut response = answer(StatusCode::SERVICE_UNAVAILABLE, "try again in a moment\n");
        response.headers_mut().insert("retry-after", hyper::header::HeaderValue::from_static("1"));
        response
    } else {
        answer(StatusCode::INTERNAL_SERVER_ERROR, "something went wrong\n")
    }
}

/// The events of a session from this one on, as they come.
async fn events(session: Session, from_seq: u64) -> Answer {
    let subscription = match session.subscribe(from_seq).await {
        Ok(subscription) => subscription,
        Err(error) => return refused(&error.into()),
    };
    // The session is held, so that it is driven on while somebody looks.
    let frames = stream::unfold((subscription, session), |(mut subscription, session)| async move {
        loop {
            match subscription.next().await {
                Ok(Update::Recorded(event)) => {
                    let json = serde_json::to_string(&event).unwrap_or_default();
                    let frame = format!("id: {}\ndata: {json}\n\n", event.seq);
                    return Some((Ok(Frame::data(Bytes::from(frame))), (subscription, session)));
                }
                // Who wants letters as they come tells previews, too.
                Ok(_) => {}
                // The browser comes again, with the last number that it has seen.
                Err(_) => return None,
            }
        }
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response
        .headers_mut()
        .insert("content-type", hyper::header::HeaderValue::from_static("text/event-stream"));
    response
}

async fn serve(runtime: Runtime, tenant: TenantId, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let path: Vec<String> =
        request.uri().path().split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let (id, what) = match path.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["sessions"] if request.method() == Method::POST => {
            let spec = SessionSpec::new(tenant).base_prompt("Be brief.").without_skills();
            return Ok(match runtime.open(spec).await {
                Ok(session) => answer(StatusCode::CREATED, format!("{}\n", session.id())),
                Err(error) => refused(&error),
            });
        }
        ["sessions", id] => ((*id).to_owned(), String::new()),
        ["sessions", id, what] => ((*id).to_owned(), (*what).to_owned()),
        _ => return Ok(answer(StatusCode::NOT_FOUND, "there is nothing here\n")),
    };
    let Ok(id) = id.parse() else { return Ok(answer(StatusCode::NOT_FOUND, "that is no session's id\n")) };
    let session = match runtime.session(&tenant, id).await {
        Ok(session) => session,
        Err(error) => return Ok(refused(&error)),
    };
    Ok(match (request.method(), what.as_str()) {
        (&Method::GET, "events") => {
            let last = request.headers().get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
            // Several events may have one number: they come again, and each has an id of its own.
            events(session, last.unwrap_or(0)).await
        }
        (&Method::POST, "") => match Limited::new(request.into_body(), LONGEST).collect().await {
            Err(_) => answer(StatusCode::PAYLOAD_TOO_LARGE, "that is too long\n"),
            Ok(body) => {
                let words = String::from_utf8_lossy(&body.to_bytes()).into_owned();
                match session.send(words).await {
                    // It is recorded, and is answered whatever happens now.
                    Ok(turn) => answer(StatusCode::ACCEPTED, format!("{}\n", turn.accepted().seq())),
                    Err(error) => refused(&error.into()),
                }
            }
        },
        _ => answer(StatusCode::METHOD_NOT_ALLOWED, "that is not done here\n"),
    })
}

/// Takes connections for ever. Dropping it ends them.
async fn listen(listener: TcpListener, runtime: Runtime, tenant: TenantId) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let (runtime, tenant) = (runtime.clone(), tenant.clone());
        connections.spawn(async move {
            let service =
                hyper::service::service_fn(|request| serve(runtime.clone(), tenant.clone(), request));
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// One request by hand; what is answered until `enough` says so.
async fn ask(
    address: SocketAddr,
    head: &str,
    body: &str,
    enough: impl Fn(&str) -> bool,
) -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect(address).await?;
    let length = body.len();
    let request = format!(
        "{head} HTTP/1.1\r\nHost: here\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    let (mut bytes, mut text) = ([0; 4096], String::new());
    while !enough(&text) {
        match stream.read(&mut bytes).await? {
            0 => break,
            count => text.push_str(&String::from_utf8_lossy(&bytes[..count])),
        }
    }
    Ok(text)
}

/// What a browser does: opens a session, says something, and watches.
async fn browse(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let opened = ask(address, "POST /sessions", "", |_| false).await?;
    let id = opened.trim().rsplit('\n').next().unwrap_or_default().to_owned();
    ask(address, &format!("POST /sessions/{id}"), "Hello!", |_| false).await?;
    let is_over = |text: &str| text.contains("session.status_idle");
    let seen = ask(address, &format!("GET /sessions/{id}/events"), "", is_over).await?;
    assert!(seen.contains("text/event-stream") && seen.contains("You said: Hello!"), "{seen}");
    for line in seen.lines().filter(|line| line.starts_with("data: ")) {
        writeln!(std::io::stdout(), "{line}")?;
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let echo = model_fn(|request: conjure::Request| async move {
        let said = request.messages.last().map(|message| Message::text(message)).unwrap_or_default();
        let text = format!("You said: {said}");
        let body =
            serde_json::json!({"stop_reason": "end_turn", "content": [{"type": "text", "text": text}]});
        Ok(parse_response(&body.to_string()).unwrap_or_else(|error| unreachable!("it is an answer: {error}")))
    });
    let runtime = Runtime::spawn(RuntimeOptions::from(Config::default()).model("echo", echo)).await?;
    let tenant = TenantId::new("acme")?;
    let served_at = std::env::args().nth(1);
    let listener = TcpListener::bind(served_at.as_deref().unwrap_or("127.0.0.1:0")).await?;
    let address = listener.local_addr()?;
    let serving = listen(listener, runtime.clone(), tenant);
    if served_at.is_some() {
        writeln!(std::io::stdout(), "http://{address}/sessions")?;
        tokio::select! {
            () = serving => {}
            interrupted = tokio::signal::ctrl_c() => interrupted?,
        }
    } else {
        tokio::select! {
            () = serving => {}
            browsed = browse(address) => browsed?,
        }
    }
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(10))).await?;
    Ok(())
}
