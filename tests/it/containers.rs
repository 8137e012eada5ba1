//! The container engine that the sessions of a host share. The tests of sandboxes in containers are in `crates/sandbox`.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use conjure::config::ExecutorKind;
use conjure::session::ContextOptions;
use conjure::{Config, Settings, Skill, Workbench};

/// An engine without any image. Yields how often it was looked for.
fn engine_without_images(socket: &Path) -> Arc<AtomicU32> {
    let listener = UnixListener::bind(socket).unwrap();
    let found = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&found);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap_or(0);
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let (status, body) = if request.contains("/version ") {
                ("200 OK", r#"{"Version":"20.10.24","ApiVersion":"1.41","MinAPIVersion":"1.12"}"#)
            } else if request.contains("/info ") {
                counter.fetch_add(1, Ordering::Relaxed);
                ("200 OK", "{}")
            } else if request.contains("/containers/json") {
                ("200 OK", "[]")
            } else {
                ("404 Not Found", r#"{"message":"No such image"}"#)
            };
            let length = body.len();
            let head = "Content-Type: application/json\r\nConnection: close";
            let _ = write!(stream, "HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}");
        }
    });
    found
}

/// Opens a session, which there is no image for.
async fn open(config: &Config) {
    let opened = Workbench::open(Vec::<Skill>::new(), config, ContextOptions::default()).await;
    let message = opened.unwrap_err().to_string();
    assert!(message.contains("has no image"), "{message}");
}

#[tokio::test]
async fn the_sessions_of_a_configuration_look_for_the_engine_once() {
    let dir = tempfile::tempdir().unwrap();
    let address = |name: &str| Some(format!("unix://{}", dir.path().join(name).display()));
    let (one, other) = ["one", "other"].map(|name| engine_without_images(&dir.path().join(name))).into();
    let docker =
        Settings { executor: Some(ExecutorKind::Docker), engine: address("one"), ..Settings::default() };
    let config = Config::default().with(docker).unwrap();
    open(&config).await;
    open(&config.clone()).await;
    open(&config.with(Settings { image: Some("another:one".to_owned()), ..Settings::default() }).unwrap())
        .await;
    assert_eq!((one.load(Ordering::Relaxed), other.load(Ordering::Relaxed)), (1, 0));
    // Another one is another one.
    open(&config.with(Settings { engine: address("other"), ..Settings::default() }).unwrap()).await;
    assert_eq!((one.load(Ordering::Relaxed), other.load(Ordering::Relaxed)), (1, 1));
}
