//! Engines that are missing, forbidden, outdated, silent or no engines: each is reported in time, with a hint.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use conjure_sandbox::{
    Docker, DockerOptions, EngineAddress, ExecutionContext, SandboxError, SandboxErrorKind,
};

use crate::container_fixture::open;
use crate::engine_api::fake_engine::{answering, json, unix, with_status};
use crate::support::{rerun_copy, test_parameters};

async fn refusal(addresses: Vec<EngineAddress>) -> SandboxError {
    let connector = Docker::new(DockerOptions { engine: addresses, ..DockerOptions::default() }, []);
    let workspace = tempfile::tempdir().unwrap();
    let refused = open(&connector, &ExecutionContext::new(workspace.path())).await.unwrap_err();
    assert_eq!(refused.kind(), SandboxErrorKind::EngineUnavailable, "{refused}");
    assert!(refused.to_string().starts_with("no container engine can be used: "), "{refused}");
    assert_eq!(connector.check_environment().await.unwrap_err().kind(), SandboxErrorKind::EngineUnavailable);
    refused
}

#[tokio::test]
async fn a_missing_engine_is_reported_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let missing = refusal(vec![unix(&dir.path().join("none"))]).await;
    assert!(missing.to_string().contains("start Docker or Podman"), "{missing}");
    // Left by an engine that was killed.
    let dead = dir.path().join("dead");
    drop(UnixListener::bind(&dead).unwrap());
    let refused = refusal(vec![unix(&dir.path().join("none")), unix(&dead)]).await;
    assert!(refused.to_string().contains("nothing listens at"), "{refused}");
    // No server listens at the discard port.
    let refused = refusal(vec!["tcp://127.0.0.1:9".parse().unwrap()]).await;
    assert!(
        refused.to_string().contains("nothing listens at `tcp://127.0.0.1:9`; start the tunnel"),
        "{refused}"
    );
}

/// Nobody's number: of a user whom permissions stop.
const NOBODY: u32 = 65534;

#[tokio::test]
async fn a_forbidden_socket_is_reported_with_a_hint() {
    if let Some(socket) = test_parameters() {
        let refused = refusal(vec![unix(Path::new(&socket))]).await;
        assert!(refused.to_string().contains("usermod -aG docker"), "{refused}");
        // Another one that it may use is found all the same.
        let refused = refusal(vec![unix(Path::new("/nothing/there")), unix(Path::new(&socket))]).await;
        assert!(refused.to_string().contains("usermod -aG docker"), "{refused}");
        println!("\nWELL");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let socket = dir.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o000)).unwrap();
    let test = "engine_api::bad_engines::a_forbidden_socket_is_reported_with_a_hint";
    let mut user = rerun_copy(dir.path(), test, socket.to_str().unwrap());
    if rustix::process::geteuid().is_root() {
        // Whom no permission stops: another user does it.
        user.uid(NOBODY).gid(NOBODY);
    }
    let ended = user.env_remove("TMPDIR").current_dir("/").output().unwrap();
    let output = String::from_utf8_lossy(&ended.stdout);
    let complaint = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && output.contains("\nWELL"), "{output}{complaint}");
}

#[tokio::test]
async fn an_outdated_engine_is_reported_with_its_version() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("old");
    answering(&socket, |request| {
        if request.contains("/version") {
            json(r#"{"Version":"19.03.8","ApiVersion":"1.40","MinAPIVersion":"1.12"}"#)
        } else {
            json("{}")
        }
    });
    let refused = refusal(vec![unix(&socket)]).await;
    assert!(refused.to_string().contains("19.03.8"), "{refused}");
    assert!(refused.to_string().contains("20.10 or later is needed"), "{refused}");
}

#[tokio::test]
async fn a_server_that_is_no_engine_is_reported() {
    for (name, answer) in [
        ("page", json("<html>welcome</html>")),
        ("other", json(r#"{"hello":"world"}"#)),
        ("noise", "SSH-2.0-OpenSSH_9.2\r\n".to_owned()),
        ("empty", String::new()),
        (
            "refusal",
            "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy"
                .to_owned(),
        ),
        // Of a proxy on the way to a port.
        ("gate", with_status("403 Forbidden", "")),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join(name);
        answering(&socket, move |_| answer.clone());
        let connector =
            Docker::new(DockerOptions { engine: vec![unix(&socket)], ..DockerOptions::default() }, []);
        let refused = connector.check_environment().await.unwrap_err();
        assert_eq!(refused.kind(), SandboxErrorKind::EngineUnavailable, "{name}: {refused}");
    }
}

/// Endless responses for the version and for the list of containers.
#[tokio::test]
async fn an_endless_response_is_reported_and_not_buffered() {
    for (endless, status) in [
        ("/version", "200 OK"),
        ("/containers/json", "200 OK"),
        ("/containers/json", "500 Internal Server Error"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("endless");
        let sent = endless_answer(&socket, endless, status);
        let connector =
            Docker::new(DockerOptions { engine: vec![unix(&socket)], ..DockerOptions::default() }, []);
        let refused = connector.sweep().await.unwrap_err();
        assert_eq!(refused.kind(), SandboxErrorKind::EngineUnavailable, "{refused}");
        assert!(refused.to_string().contains("says more than any engine does"), "{refused}");
        assert!(sent.load(Ordering::Relaxed) < 80 << 20);
    }
}

/// An engine whose answer to this has no end; how much of it was sent.
fn endless_answer(socket: &Path, endless: &'static str, status: &'static str) -> Arc<AtomicUsize> {
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            if request.lines().next().unwrap().contains(endless) {
                let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\n\r\n{{\"message\":\"");
                stream.write_all(head.as_bytes()).unwrap();
                while stream.write_all(&[b'x'; 1 << 16]).is_ok() {
                    counter.fetch_add(1 << 16, Ordering::Relaxed);
                }
            } else {
                let body = r#"{"Version":"20.10.24","ApiVersion":"1.41","MinAPIVersion":"1.12"}"#;
                drop(stream.write_all(json(body).as_bytes()));
            }
        }
    });
    sent
}

#[tokio::test]
async fn a_silent_engine_times_out() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("silent");
    let _silent = UnixListener::bind(&socket).unwrap();
    let refused = refusal(vec![unix(&socket)]).await;
    assert!(refused.to_string().contains("did not report its version within"), "{refused}");
}
