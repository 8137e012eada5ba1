//! `conjure run`: answers one prompt in a new session.

mod command;
mod printing;
mod setup;

mod command_session;
mod follow_turn;
mod model_change;

mod outputs;

pub(crate) use command::run;
pub(crate) use command_session::{
    Closing, CommandSession, FollowOptions, HostedState, ModelRecording, ShutdownWait, WorkspaceOwner,
    finish_recording, print_isolation,
};
pub(crate) use follow_turn::{FollowOutcome, TurnCommand, TurnFollower};
pub(crate) use model_change::{ModelChange, RecordedModelProxy};
pub(crate) use outputs::{
    OutputTarget, hosted_file_ids, hosted_line, human_size, list_outputs, open_out_dir, sort_by_events,
    split_newest,
};
pub(crate) use printing::printer::{EventSender, TurnDisplay, start_printer};
pub(crate) use printing::progress::{
    DisplayMode, MAX_REASON_CHARS, describe_call_shortly, shorten_to, skill_names,
};
pub(crate) use printing::run_result::{
    RunResult, awaiting_result, timeout_error, unanswered_error, undecided_error,
};
pub(crate) use printing::turn_summary::{TurnEnd, TurnSummary};
pub(crate) use printing::usage_report::PriceCheck;
pub(crate) use setup::mcp_servers::servers as mcp_servers;
#[cfg(feature = "model-http")]
pub(crate) use setup::model_source::connect_error;
pub(crate) use setup::model_source::{ModelArgs, SCRIPT, SelectedModel, script_from_notes, select_model};
pub(crate) use setup::open_session::{SessionFiles, merge_args, open_session, registration_source};
pub(crate) use setup::prompt_input::{MAX_INPUT_BYTES, check_prompt, message, standard_input};
pub(crate) use setup::sandbox_flags::settings_from_notes;
pub(crate) use setup::session_setup::{
    add_files, no_workspace_error, redactor, run_blocking, tool_dirs, variables, with_recorder,
};
#[cfg(any(feature = "acp", feature = "mcp", feature = "serve"))]
pub(crate) use setup::{model_source::read_script, open_session::executor_of};
