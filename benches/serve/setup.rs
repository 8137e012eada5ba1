//! What all parts need: a server with an agent and an environment, and the sessions in it.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::Result;
use crate::http_client::{Connection, Request};
use crate::server_process::ServerProcess;

/// How many turns a session has at most: so many the script has.
pub(crate) const TURNS: usize = 16;

/// A data directory with a script beside it.
#[derive(Debug)]
pub(crate) struct Setup {
    dir: TempDir,
}

impl Setup {
    pub(crate) fn new() -> Result<Self> {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let turns = vec![json!({"content": "It is four."}); TURNS];
        let script = json!({"version": 1, "name": "serve", "turns": turns});
        std::fs::write(dir.path().join("script.json"), script.to_string())?;
        Ok(Self { dir })
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn script(&self) -> PathBuf {
        self.dir.path().join("script.json")
    }

    pub(crate) async fn server(&self) -> Result<ServerProcess> {
        ServerProcess::start(&self.data(), &self.script()).await
    }
}

/// What a session is made of.
#[derive(Debug, Clone)]
pub(crate) struct Objects {
    agent: String,
    environment: String,
}

impl Objects {
    pub(crate) async fn create(server: SocketAddr) -> Result<Self> {
        let mut connection = Connection::open(server).await?;
        let agent = Request::post("/v1/agents", &json!({"name": "An agent", "model": "any"}));
        let environment = Request::post("/v1/environments", &json!({"name": "environment"}));
        Ok(Self {
            agent: id(&connection.answer(&agent).await?)?,
            environment: id(&connection.answer(&environment).await?)?,
        })
    }

    /// The request that creates a session.
    pub(crate) fn creation(&self) -> Request {
        Request::post("/v1/sessions", &json!({"agent": self.agent, "environment_id": self.environment}))
    }

    /// Creates a session. Returns its id.
    pub(crate) async fn session(&self, connection: &mut Connection) -> Result<String> {
        id(&connection.answer(&self.creation()).await?)
    }
}

fn id(object: &Value) -> Result<String> {
    Ok(object["id"].as_str().ok_or("no id")?.to_owned())
}

/// The request that sends a message to a session.
pub(crate) fn message(session: &str, text: &str) -> Request {
    let content = json!([{"type": "text", "text": text}]);
    let body = json!({"events": [{"type": "user.message", "content": content}]});
    Request::post(format!("/v1/sessions/{session}/events"), &body)
}

/// The load of the machine.
pub(crate) fn load() -> Result<String> {
    let load = std::fs::read_to_string("/proc/loadavg")?;
    Ok(load.split(' ').take(3).collect::<Vec<_>>().join(" "))
}
