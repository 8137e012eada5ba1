//! [`TinyModel`]: a real llama.cpp server with a tiny model.
#![expect(clippy::unwrap_used, reason = "a test that cannot run its program has failed")]

use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use crate::Python;

const DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tiny-model");

/// A running llama.cpp server. It ends with this value. Its model calls the tool `bash` once and then says what that printed; template, tokenizer,
/// grammar and parsers are the server's own.
#[derive(Debug)]
pub struct TinyModel {
    /// The server's address, without `/v1`.
    pub url: String,
    _child: Child,
    _dir: TempDir,
}

impl TinyModel {
    /// Makes the model and serves it, with a context of so many tokens. `None`, which is recorded as a skip of the calling test, without the
    /// Python packages.
    ///
    /// # Panics
    ///
    /// Where the model cannot be made, or the server does not start.
    pub async fn start(context: u32) -> Option<Self> {
        let check = "import xllamacpp, gguf, numpy";
        let python = Python::find("CONJURE_ORACLE_PYTHON", check, "`xllamacpp`, `gguf` and `numpy`").await?;
        let dir = TempDir::new().unwrap();
        let model = dir.path().join("tiny.gguf");
        let made = python.command().arg(format!("{DIR}/make.py")).arg(&model).output().await.unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut child = python
            .command()
            .arg(format!("{DIR}/serve.py"))
            .arg(&model)
            .arg(context.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It prints its address, or nothing if it could not start.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = lines.next_line().await.unwrap().unwrap();
        Some(Self { url, _child: child, _dir: dir })
    }
}
