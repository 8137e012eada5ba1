//! The options of `conjure serve`.

use std::fmt;
use std::net::{AddrParseError, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use crate::cli::args::sessions::DataArgs;

const SERVE_EXAMPLES: &str = "\
Examples:
  conjure serve --script fixtures/scripts/serve-quickstart.yaml
  conjure serve --listen 127.0.0.1:0 --data /srv/conjure

It prints `listening on http://ADDRESS` on standard output once it answers. Clients need one changed
line: the base URL. Without keys it answers to this machine only. The first signal ends streams with
a last event and waits for what runs; sessions go on when the server starts again.";

/// Where the server listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenAt {
    /// At this address.
    Address(SocketAddr),
    /// On the socket that is the standard input.
    StandardInput,
}

impl FromStr for ListenAt {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, AddrParseError> {
        if text == "-" { Ok(Self::StandardInput) } else { text.parse().map(Self::Address) }
    }
}

impl fmt::Display for ListenAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::StandardInput => f.write_str("standard input"),
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = SERVE_EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Where to listen; the port 0 takes a free one, and `-` the socket on standard input, which systemd gives.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8400")]
    pub(crate) listen: ListenAt,
    /// A script that every model's words come from; each session plays it from its first turn.
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// Where tools run: `jail` (the default), `docker`, or `local`, a plain child process that isolates nothing; `jail-or-local` is `local`
    /// where this machine permits no jail.
    #[arg(long, value_name = "KIND")]
    pub(crate) sandbox: Option<String>,
    /// The certificate and its chain (PEM), for TLS; instead of the configured one.
    #[arg(long, value_name = "FILE", requires = "private_key")]
    pub(crate) certificate: Option<PathBuf>,
    /// The private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub(crate) private_key: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) data_args: DataArgs,
}
