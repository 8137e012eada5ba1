//! `conjure keys`: creates, lists and revokes the keys of the server's clients, in the data directory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use conjure::server::{ApiKeyId, ApiKeyInfo, ApiKeys, ApiKeysError, NewApiKey, Scope};
use conjure::{Clock as _, Config, ProcessEnv, RuntimeOptions, SystemClock, TenantId};
use serde_json::{Value, json};

use crate::cli::args::{DataArgs, Format, KeysCommand, LOCAL_TENANT};
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::command_runtime::{CommandRuntime, create_data_dir, with_data_dir};
use crate::cli::terminal::{Terminal, printable};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Runs the subcommand.
pub(crate) async fn keys(
    command: KeysCommand,
    config: Config,
    environment: ProcessEnv,
    terminal: Arc<Terminal>,
) -> Result<ExitStatus, CliError> {
    let (config, environment, terminal) = (&config, &environment, &terminal);
    let data_args = match &command {
        KeysCommand::Create { data_args, .. } => data_args.clone(),
        KeysCommand::List { data, .. } | KeysCommand::Revoke { data, .. } => data_args(data)?,
    };
    let config = with_data_dir(&data_args, config)?;
    // The first key may be created before the server's first start.
    if let KeysCommand::Create { .. } = &command {
        create_data_dir(&config)?;
    }
    let options = |config| RuntimeOptions::from(config).for_user(environment);
    let host = CommandRuntime::for_sessions(&data_args, options, &config, environment).await?;
    let done = change(command, &host, terminal).await;
    host.shut_down_after(done).await
}

async fn change(
    command: KeysCommand,
    host: &CommandRuntime,
    terminal: &Terminal,
) -> Result<ExitStatus, CliError> {
    let keys = ApiKeys::new(host.runtime.records());
    match command {
        KeysCommand::Create { name, scopes, expires_in_days, data_args } => {
            let parsed: Result<_, _> = scopes.iter().map(|scope| scope.parse()).collect();
            let scopes =
                if scopes.is_empty() { Scope::ALL.into() } else { parsed.map_err(CliError::usage)? };
            let created_at = SystemClock.timestamp();
            let expires_at = expires_in_days.map(|days| created_at.saturating_add(DAY.saturating_mul(days)));
            let new = NewApiKey { tenant: data_args.tenant, name, scopes, created_at, expires_at };
            let key = keys.create(new).await.map_err(not_done)?;
            terminal.note(&format!("{} is created; its text is shown this once:", key.id()));
            terminal.output(&key.text());
            Ok(ExitStatus::Success)
        }
        KeysCommand::List { format, .. } => {
            let known = keys.list(None).await.map_err(not_done)?;
            match format {
                Format::Json => {
                    let known: Vec<Value> = known.iter().map(json_entry).collect();
                    terminal.output(&format!("{:#}", json!({ "keys": known })));
                }
                Format::Text if known.is_empty() => terminal.note("no keys"),
                Format::Text => known.iter().for_each(|key| terminal.output(&line(key))),
            }
            Ok(ExitStatus::Success)
        }
        KeysCommand::Revoke { ids, .. } => {
            let ids: Result<Vec<ApiKeyId>, _> = ids.iter().map(|id| id.parse()).collect();
            let ids =
                ids.map_err(|error: conjure::server::ApiKeyTextError| CliError::usage(error.to_string()))?;
            let mut exit = ExitStatus::Success;
            for id in ids {
                if keys.revoke(id).await.map_err(not_done)? {
                    terminal.note(&format!("{id} is revoked"));
                } else {
                    terminal.warning(&format!("there is no key {id}"));
                    exit = ExitStatus::Failed;
                }
            }
            Ok(exit)
        }
    }
}

/// The options of a command about the keys of all tenants.
fn data_args(data: &Option<PathBuf>) -> Result<DataArgs, CliError> {
    let tenant = TenantId::new(LOCAL_TENANT).map_err(|error| CliError::usage(error.to_string()))?;
    Ok(DataArgs { data: data.clone(), tenant })
}

fn not_done(error: ApiKeysError) -> CliError {
    match error {
        ApiKeysError::Name | ApiKeysError::NoScope => CliError::usage(error.to_string()),
        _ => CliError::internal(error.to_string()),
    }
}

fn line(key: &ApiKeyInfo) -> String {
    let scopes: Vec<String> = key.scopes.iter().map(ToString::to_string).collect();
    let end = match key.expires_at {
        Some(end) if end <= SystemClock.timestamp() => format!("  expired {end}"),
        Some(end) => format!("  until {end}"),
        None => String::new(),
    };
    let scopes = scopes.join(",");
    format!("{}  {}  {scopes:<14}  {}{end}", key.id, key.tenant, printable(&key.name))
}

fn json_entry(key: &ApiKeyInfo) -> Value {
    json!({
        "id": key.id.to_string(),
        "name": key.name,
        "tenant": key.tenant.to_string(),
        "scopes": key.scopes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "created_at": key.created_at.to_string(),
        "expires_at": key.expires_at.map(|end| end.to_string()),
    })
}
