//! Whether a container engine answers. Not needed yet; containers come with a later version.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conjure::Environment;

use crate::cli::doctor::check::{Check, Finding};

/// An engine that does not answer a ping within this time is not of use.
const PATIENCE: Duration = Duration::from_secs(2);

/// Looks for an engine at the usual places.
pub(super) async fn check(environment: &Environment) -> Check {
    let sockets = environment.engine_sockets();
    // The socket's calls block, for a bounded time each.
    let asked = tokio::task::spawn_blocking(move || ask(&sockets)).await;
    match asked {
        Ok(Ok((socket, engine))) => {
            Check::new("container engine", Finding::Good(format!("{engine} at {}", socket.display())))
        }
        Ok(Err(reason)) => Check::new("container engine", Finding::Missing(reason)).remedy(
            "start Docker or Podman and let this user reach its socket; DOCKER_HOST says where it is",
        ),
        Err(error) => Check::new("container engine", Finding::Unknown(error.to_string())),
    }
}

/// The first engine that answers, or why the likeliest one did not.
fn ask(sockets: &[PathBuf]) -> Result<(PathBuf, String), String> {
    let mut refusal = None;
    for socket in sockets.iter().filter(|socket| socket.exists()) {
        match ping(socket) {
            Ok(engine) => return Ok((socket.clone(), engine)),
            Err(error) => {
                refusal.get_or_insert_with(|| format!("{} does not answer: {error}", socket.display()));
            }
        }
    }
    Err(refusal.unwrap_or_else(|| "no socket found".to_owned()))
}

/// Asks for a sign of life; the answer's `Server` header names the engine and its version.
fn ping(socket: &Path) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(4096).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let mut lines = answer.lines();
    if !lines.next().is_some_and(|status| status.contains(" 200")) {
        return Err(std::io::Error::other("the answer is not an engine's"));
    }
    let header = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("server").then(|| value.trim().escape_debug().to_string())
    });
    Ok(header.unwrap_or_else(|| "an engine".to_owned()))
}
