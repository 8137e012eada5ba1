//! Preparation steps that new and resumed sessions share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure::model::{ModelTarget, Recorder};
#[cfg(feature = "docker")]
use conjure::sandbox::VolumeAccess;
use conjure::session::{ContextOptions, Redactor, SessionWorkspace, WorkspaceSnapshot, noted_workspaces};
use conjure::{Config, Model, ProcessEnv};

use crate::cli::args::Variable;
use crate::cli::cli_error::{CliError, ExitStatus};
use crate::cli::destination::{self, ToolDirs};
use crate::cli::run::setup::model_source::SelectedModel;
use crate::cli::run::setup::prompt_input;
use crate::cli::terminal::printable;

/// The error if files cannot be copied because no tools run on this machine.
pub(crate) fn no_workspace_error() -> CliError {
    CliError::usage("`--file`: there is no workspace to copy it to, as nothing runs here")
}

/// The redactor for the variables, and for the secrets of every model that the session may change to.
pub(crate) fn redactor(
    variables: &BTreeMap<String, String>,
    selected: &SelectedModel,
    config: &Config,
    process: &ProcessEnv,
) -> Redactor {
    let (environment, secrets) = (variables.clone(), ModelTarget::secrets(config, process));
    let redactor = ContextOptions { environment, secrets, ..ContextOptions::default() }.redactor();
    redactor.extend(&Redactor::new(selected.secrets.clone()));
    redactor
}

/// The directories that tools may write to: this session's workspace and those of earlier sessions, the data directory, and what the
/// configuration gives to sandboxes. Blocks.
pub(crate) fn tool_dirs(workspace: Option<&Path>, config: &Config, process: &ProcessEnv) -> ToolDirs {
    let data = config.data().map(Path::to_owned).or_else(|| process.data_dir());
    let earlier = data.as_deref().map(noted_workspaces).unwrap_or_default();
    let volumes = writable_volumes(config);
    let paths = workspace
        .into_iter()
        .chain(data.as_deref())
        .chain(config.allowed_paths().iter().map(PathBuf::as_path));
    ToolDirs::new(paths.chain(earlier.iter().chain(&volumes).map(PathBuf::as_path)))
}

/// The host directories that containers may write to.
#[cfg(feature = "docker")]
fn writable_volumes(config: &Config) -> Vec<PathBuf> {
    // With volumes that cannot be parsed there are no containers.
    let volumes = config.docker().map(|options| options.volumes).unwrap_or_default();
    volumes
        .into_iter()
        .filter(|volume| volume.access == VolumeAccess::ReadWrite)
        .map(|volume| volume.host)
        .collect()
}

#[cfg(not(feature = "docker"))]
fn writable_volumes(_: &Config) -> Vec<PathBuf> {
    Vec::new()
}

/// A model, and its recorder if there is one.
pub(crate) type ModelWithRecorder = (SelectedModel, Option<Arc<Recorder<Arc<dyn Model>>>>);

/// Adds a recorder to the model, if the user wants a recording.
pub(crate) fn with_recorder(
    mut model: SelectedModel,
    record: Option<&Path>,
    redactor: Redactor,
    tools: &ToolDirs,
) -> Result<ModelWithRecorder, CliError> {
    let Some(path) = record else { return Ok((model, None)) };
    let refused = |told: String| CliError::usage(format!("`--record`: {told}"));
    let (dir, name) = destination::open_parent(path, tools).map_err(|error| refused(error.to_string()))?;
    let recorder = Recorder::create_in(Arc::clone(&model.model), dir.handle, name, path);
    let recorder = Arc::new(recorder.map_err(|error| refused(error.to_string()))?.with_redactor(redactor));
    model.model = Arc::clone(&recorder) as Arc<dyn Model>;
    Ok((model, Some(recorder)))
}

/// Copies files to a workspace. Links that tools may have created are not followed. Returns a snapshot before any tool ran.
pub(crate) async fn add_files(
    dir: PathBuf,
    files: Vec<PathBuf>,
    tools: Arc<ToolDirs>,
) -> Result<(Vec<PathBuf>, WorkspaceSnapshot), CliError> {
    run_blocking(move || {
        let workspace = SessionWorkspace::at_real_path(&dir)?;
        let added = files
            .iter()
            .map(|path| {
                let path = prompt_input::check_file_name(path)?;
                let file = destination::open_file(path, &tools);
                let file = file.map_err(|error| CliError::usage(printable(&error.to_string())))?;
                Ok(workspace.add_open_file(path, file)?)
            })
            .collect::<Result<Vec<PathBuf>, CliError>>()
            .map_err(|failure| failure.in_option("--file"))?;
        Ok((added, workspace.snapshot()))
    })
    .await
}

/// Runs blocking work on a blocking thread.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CliError> + Send + 'static,
) -> Result<T, CliError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(CliError::internal(format!("the preparation failed: {error}"))))
}

/// The variables for tools.
pub(crate) fn variables(given: &[Variable]) -> Result<BTreeMap<String, String>, CliError> {
    let mut variables = BTreeMap::new();
    for variable in given {
        let value = match &variable.value {
            Some(value) => value.clone(),
            None => ProcessEnv::var(&variable.name).ok_or_else(|| {
                CliError::new(
                    ExitStatus::Usage,
                    format!("`--env {}`: this variable is not set", variable.name),
                )
                .with_hint("`--env NAME=VALUE` gives its value")
            })?,
        };
        variables.insert(variable.name.clone(), value);
    }
    Ok(variables)
}
