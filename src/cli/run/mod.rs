//! `conjure run`: answers one prompt in a new session.

mod command;
mod run_plan;

mod model_source;
mod prompt_input;
mod sandbox_flags;

mod command_session;
mod follow_turn;
mod progress;
mod turn_summary;

mod outputs;
mod run_result;
mod usage_report;

pub(crate) use command::run;
pub(crate) use command_session::{
    CommandSession, FollowOptions, HostedState, ModelRecording, WorkspaceOwner, print_isolation,
    sandbox_error,
};
pub(crate) use follow_turn::TurnCommand;
pub(crate) use model_source::{ModelArgs, SCRIPT, SelectedModel, script_from_notes, select_model};
pub(crate) use outputs::{
    OutputTarget, hosted_file_ids, hosted_line, human_size, open_out_folder, sort_by_events,
};
pub(crate) use progress::{DisplayMode, skill_names};
pub(crate) use prompt_input::{check_prompt, message, standard_input};
pub(crate) use run_plan::{
    add_files, no_workspace_error, redactor, run_blocking, tool_dirs, variables, with_recorder,
};
pub(crate) use run_result::{timeout_error, undecided_error};
pub(crate) use sandbox_flags::settings_from_notes;
pub(crate) use turn_summary::TurnSummary;
