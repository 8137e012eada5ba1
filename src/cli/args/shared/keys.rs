//! The options of `conjure keys`.

use crate::cli::args::sessions::DataArgs;
use crate::cli::args::shared::format::Format;

const KEYS_EXAMPLES: &str = "\
Examples:
  conjure keys create 'build server' --tenant acme
  conjure keys create dashboard --scope read --expires-in-days 30
  conjure keys list
  conjure keys revoke key_0123456789abcdef0123456789abcdef

A server needs a key of every client as soon as there is one. The text of a key is shown once, when
it is created; a hash of it is stored. A running server sees new and revoked keys at once.";

#[derive(Debug, clap::Args)]
#[command(after_help = KEYS_EXAMPLES)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    pub(crate) command: KeysCommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum KeysCommand {
    /// Create a key and print its text, which is never shown again.
    Create {
        /// What the key is for.
        #[arg(value_name = "NAME")]
        name: String,
        /// What the key may do: `read`, `run` (sessions and files), `admin` (agents, environments, skills); may be repeated. All by
        /// default.
        #[arg(long = "scope", value_name = "SCOPE", value_parser = ["read", "run", "admin"])]
        scopes: Vec<String>,
        /// The number of days after which the key is refused; never by default.
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
        expires_in_days: Option<u32>,
        #[command(flatten)]
        data_args: DataArgs,
    },
    /// List the keys of all tenants, without their secrets.
    List {
        /// The output format.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
        /// The data directory, instead of the configured one.
        #[arg(long, value_name = "DIR")]
        data: Option<std::path::PathBuf>,
    },
    /// Revoke keys: they are refused from now on, and their streams end.
    Revoke {
        /// The keys' ids, as `conjure keys list` shows them.
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
        /// The data directory, instead of the configured one.
        #[arg(long, value_name = "DIR")]
        data: Option<std::path::PathBuf>,
    },
}
