//! The server is killed at any point of a conversation, and started again: nothing that was acknowledged is lost, and every session ends
//! without anybody asking.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use crate::server::{Started, folder, python};

/// How often the server is killed. Each time after another number of acknowledged requests.
const KILLS: usize = 12;

#[tokio::test]
async fn a_killed_server_loses_nothing_and_ends_every_session() {
    let Some(python) = python().await else { return };
    let data = tempfile::tempdir().unwrap();
    let mut server = Started::start(data.path(), Some("killed")).await;
    let mut command = python.command();
    let mut client = command
        .arg(folder().join("programs/killed.py"))
        .arg(server.url())
        .env("PYTHONPATH", folder().join("programs"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut requests = client.stdin.take().unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    for kill in 0..KILLS {
        // The client says each request that it begins; the server dies at one of them.
        for _ in 0..=kill % 5 {
            let line = lines.next_line().await.unwrap().expect("the client goes on");
            assert_eq!(line, "request");
        }
        server.kill().await;
        server = Started::start(data.path(), Some("killed")).await;
        // The client takes the new address once it has lost the old one.
        requests.write_all(format!("{}\n", server.url()).as_bytes()).await.unwrap();
    }
    requests.write_all(b"end\n").await.unwrap();
    drop(requests);
    while lines.next_line().await.unwrap().is_some() {}
    assert!(client.wait().await.unwrap().success(), "the client found what was acknowledged");
    server.stop().await;
}
