//! A web service over the runtime: `POST /sessions` opens one, `POST /sessions/ID` says something, `GET /sessions/ID/events`
//! is a stream of server-sent events, which a browser takes up again where it broke off (`Last-Event-ID`).
//!
//! ```text
//! cargo run -p examples --example event_stream                 # asks itself, and ends
//! cargo run -p examples --example event_stream 127.0.0.1:8080  # serves
//!   curl -X POST localhost:8080/sessions; curl -d 'Hello!' localhost:8080/sessions/sesn_…; curl localhost:8080/sessions/sesn_…/events
//! ```
//!
//! The tenant would come from who is logged in; here there is one. Nothing about a session lives in this service: with a data
//! directory in its configuration the same addresses work after a restart. Here all is in memory.

use std::convert::Infallible;
use std::error::Error;
use std::future::IntoFuture as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use conjure::{
    Clock as _, Config, Message, Runtime, RuntimeError, RuntimeOptions, SessionError, SessionId, SessionSpec,
    SystemClock, TenantId, Update, model_fn,
};
use futures_util::{Stream, stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What a user may say at once, in bytes.
const LONGEST: usize = 64 << 10;

/// What every request is answered with.
#[derive(Clone)]
struct Service {
    runtime: Runtime,
    tenant: TenantId,
}

/// A failure, as a user is told of it: only whether trying again may help. The failure itself, which may name directories, other
/// processes and hosts, is for the log.
struct Refused(RuntimeError);

impl From<RuntimeError> for Refused {
    fn from(error: RuntimeError) -> Self {
        Self(error)
    }
}

impl From<SessionError> for Refused {
    fn from(error: SessionError) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Self(error) = self;
        if let RuntimeError::NotFound { .. } = error {
            return (StatusCode::NOT_FOUND, "there is no such session\n").into_response();
        }
        let _ = writeln!(std::io::stderr(), "{error}");
        if error.is_retryable() {
            let later = [(header::RETRY_AFTER, "1")];
            return (StatusCode::SERVICE_UNAVAILABLE, later, "try again in a moment\n").into_response();
        }
        (StatusCode::INTERNAL_SERVER_ERROR, "something went wrong\n").into_response()
    }
}

async fn open(State(service): State<Service>) -> Result<(StatusCode, String), Refused> {
    let spec = SessionSpec::new(service.tenant).base_prompt("Be brief.").without_skills();
    let session = service.runtime.open(spec).await?;
    Ok((StatusCode::CREATED, format!("{}\n", session.id())))
}

async fn say(
    State(service): State<Service>,
    Path(id): Path<SessionId>,
    words: String,
) -> Result<(StatusCode, String), Refused> {
    let session = service.runtime.session(&service.tenant, id).await?;
    // It is recorded, and is answered whatever happens now.
    let turn = session.send(words).await?;
    Ok((StatusCode::ACCEPTED, format!("{}\n", turn.accepted().seq())))
}

/// The events of a session from the last one on that the browser has seen, as they come.
async fn events(
    State(service): State<Service>,
    Path(id): Path<SessionId>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refused> {
    let session = service.runtime.session(&service.tenant, id).await?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    // Several events may have one number: they come again, and each has an id of its own.
    let subscription = session.subscribe(last.unwrap_or(0)).await?;
    // The session is held, so that it is driven on while somebody looks.
    let events = stream::unfold((subscription, session), |(mut subscription, session)| async move {
        loop {
            match subscription.next().await {
                Ok(Update::Recorded(event)) => {
                    let told = Event::default().id(event.seq.to_string()).data(event.to_line());
                    return Some((Ok(told), (subscription, session)));
                }
                // Who wants letters as they come tells previews, too.
                Ok(_) => {}
                // The browser comes again, with the last number that it has seen.
                Err(_) => return None,
            }
        }
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

fn router(service: Service) -> Router {
    Router::new()
        .route("/sessions", post(open))
        .route("/sessions/{id}", post(say))
        .route("/sessions/{id}/events", get(events))
        .layer(DefaultBodyLimit::max(LONGEST))
        .with_state(service)
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
        Ok(conjure::Response::text(format!("You said: {said}")))
    });
    let runtime = Runtime::spawn(RuntimeOptions::from(Config::default()).model("echo", echo)).await?;
    let tenant = TenantId::new("acme")?;
    let served_at = std::env::args().nth(1);
    let listener = TcpListener::bind(served_at.as_deref().unwrap_or("127.0.0.1:0")).await?;
    let address = listener.local_addr()?;
    let serving = axum::serve(listener, router(Service { runtime: runtime.clone(), tenant })).into_future();
    if served_at.is_some() {
        writeln!(std::io::stdout(), "http://{address}/sessions")?;
        tokio::select! {
            served = serving => served?,
            interrupted = tokio::signal::ctrl_c() => interrupted?,
        }
    } else {
        tokio::select! {
            served = serving => served?,
            browsed = browse(address) => browsed?,
        }
    }
    runtime.shutdown(SystemClock.deadline(Duration::from_secs(10))).await?;
    Ok(())
}
