//! `conjure models`: lists services, or the models of one.

use conjure::model::{ListedModel, ModelClients};
use conjure::{Config, ProcessEnv};

use crate::cli::args::{Format, ModelsArgs};
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::models::service_state::{Reachability, ServiceState, service_states};
use crate::cli::run::connect_error;
use crate::cli::terminal::{Terminal, printable};

/// Lists the services, or the models of the named one.
pub(crate) async fn models(
    args: ModelsArgs,
    config: &Config,
    environment: &ProcessEnv,
    terminal: &Terminal,
) -> Result<ExitStatus, CliError> {
    match args.name {
        Some(name) => list_one(&name, args.format, config, environment, terminal).await,
        None => {
            list_services(args.format, config, environment, terminal).await;
            Ok(ExitStatus::Success)
        }
    }
}

async fn list_services(format: Format, config: &Config, environment: &ProcessEnv, terminal: &Terminal) {
    let services = service_states(config, environment).await;
    if matches!(format, Format::Json) {
        let all: Vec<_> = services.iter().map(ServiceState::json).collect();
        terminal.output(&format!("{:#}", serde_json::json!({"version": 1, "services": all})));
        return;
    }
    let width = |text: fn(&ServiceState) -> String| {
        services.iter().map(|service| printable(&text(service)).chars().count()).max().unwrap_or(0)
    };
    let (name, address) = (width(|service| service.name.clone()), width(ServiceState::address));
    for service in &services {
        let (own, at) = (printable(&service.name), printable(&service.address()));
        let line = format!("{own:<name$}  {:<9}  {at:<address$}  {}", service.api(), service.summary());
        terminal.output(line.trim_end());
    }
    if config.models().is_empty() {
        terminal.note("a name of your own is a table `[models.NAME]` in `~/.conjure/config.toml`");
    }
}

async fn list_one(
    name: &str,
    format: Format,
    config: &Config,
    environment: &ProcessEnv,
    terminal: &Terminal,
) -> Result<ExitStatus, CliError> {
    // `ollama:` names the service itself.
    let asked = if name.ends_with(':') { format!("{name}NAME") } else { name.to_owned() };
    let clients = ModelClients::default();
    clients.connect(&asked, config, environment).map_err(|error| connect_error(&error, config))?;
    let service = ServiceState::ask(asked, &clients, config, environment).await;
    let Reachability::Answers(models) = &service.state else {
        return Err(CliError::new(ExitStatus::Failed, service.described())
            .with_hint(format!("is the service at {} running, and the address right?", service.address())));
    };
    if matches!(format, Format::Json) {
        terminal.output(&format!("{:#}", service.json()));
    } else {
        models.iter().for_each(|model| terminal.output(&line(model)));
    }
    Ok(ExitStatus::Success)
}

/// One model: its name and its context.
fn line(model: &ListedModel) -> String {
    let id = printable(&model.id);
    match model.context_tokens {
        Some(tokens) => format!("{id}  (context {tokens} tokens)"),
        None => id,
    }
}
