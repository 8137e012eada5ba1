//! What every kind of sandbox must show, as functions that take the kind.
//!
//! A test file for a kind says `conformance! { every: KIND }`, and for a kind that keeps commands apart from the host
//! `conformance! { isolated: KIND }` besides, with `shared` and `isolated_and_shared` where directories of the host are the sandbox's, where `KIND` is a [`super::Kind`]; with `usable`, what the image or the machine
//! must have for that (Python, Git, Perl; Node where it is there). Each function becomes a test of its own at the root of
//! that file.

pub(crate) mod bulk;
pub(crate) mod calls;
pub(crate) mod confinement;
pub(crate) mod ends;
pub(crate) mod files;
pub(crate) mod limits;
pub(crate) mod links;
pub(crate) mod pauses;
pub(crate) mod started;
pub(crate) mod usability;

/// Makes tests of the functions.
#[macro_export]
macro_rules! conformance {
    (every: $kind:expr) => {
        $crate::conformance! { tests: $kind;
            calls::a_program_runs_in_the_workspace_with_its_input_and_variables,
            calls::a_large_input_reaches_a_program_that_answers_in_between,
            calls::no_key_of_the_host_is_in_the_environment,
            calls::how_a_program_ended_is_told_apart,
            calls::both_streams_are_kept_apart_when_asked_for,
            calls::output_is_seen_while_the_program_runs,
            calls::a_content_stream_that_is_not_read_delays_no_other,
            calls::sixty_four_calls_at_once_are_told_apart,
            calls::invalid_requests_are_rejected,
            ends::a_timeout_ends_every_descendant,
            ends::a_cancellation_ends_every_descendant,
            ends::a_command_that_keeps_stopping_its_supervisor_does_not_cost_the_sandbox,
            ends::a_background_child_that_keeps_the_output_does_not_delay_the_result,
            ends::a_run_that_is_dropped_at_any_poll_leaves_no_process,
            ends::a_killed_guest_loses_the_call_and_all_later_ones_and_leaves_nothing,
            ends::orphans_do_not_stay_as_zombies,
            ends::cleanup_ends_everything_and_removes_what_was_spilled,
            ends::dropping_the_sandbox_ends_everything,
            files::files_are_made_changed_shown_and_listed,
            files::contexts_that_make_no_sense_are_refused,
            links::no_path_leads_out_of_the_roots,
            links::no_race_of_links_leads_out_of_the_roots,
            pauses::background_processes_are_paused_and_resumed,
            pauses::a_command_resumes_paused_processes,
            pauses::a_sandbox_with_a_call_under_way_is_not_paused,
            pauses::a_pause_respects_the_deadline_of_its_call,
            pauses::a_paused_sandbox_is_cleaned_up,
            pauses::a_paused_sandbox_that_is_dropped_leaves_nothing,
            pauses::a_killed_guest_of_a_paused_sandbox_is_noticed_and_leaves_nothing,
            started::a_started_program_lives_between_calls_and_beside_them,
            started::a_started_program_is_paused_and_goes_on_with_its_next_call,
            started::a_started_program_ends_with_its_handle_and_all_that_it_started,
            started::a_started_program_ends_with_its_sandbox,
            started::a_started_program_that_nobody_reads_or_that_reads_nothing_delays_no_other,
            started::a_program_that_cannot_be_started_says_why,
        }
        $crate::conformance! { named_tests: $kind;
            bulk::memory_is_constant_for_any_amount_of_data,
            ends::a_killed_host_leaves_nothing,
            pauses::a_killed_host_leaves_nothing_of_a_paused_sandbox,
        }
    };
    (shared: $kind:expr) => {
        $crate::conformance! { tests: $kind;
            files::read_only_directories_are_read_only_and_allowed_ones_are_not,
            files::the_host_can_read_and_delete_files_of_commands,
        }
    };
    (isolated_and_shared: $kind:expr) => {
        $crate::conformance! { tests: $kind;
            files::skills_and_allowed_directories_are_where_they_should_be,
        }
    };
    (isolated: $kind:expr) => {
        $crate::conformance! { tests: $kind;
            bulk::much_output_needs_little_memory,
            bulk::truncated_output_is_complete_in_a_read_only_file,
            ends::zombies_do_not_fill_the_limit_of_processes,
            files::unusable_directories_are_rejected,
            confinement::every_attack_is_refused,
            confinement::nothing_of_the_host_is_there,
            confinement::commands_see_their_own_sandbox_alone,
            confinement::commands_have_no_privileges_and_get_none,
            confinement::read_only_paths_are_not_written,
            confinement::limits_are_in_force_and_cannot_be_raised,
            confinement::when_memory_runs_out_commands_are_chosen_before_the_guest,
            limits::a_fork_storm_is_reported_and_can_be_ended,
            limits::a_fork_storm_left_behind_does_not_keep_the_next_call_from_working,
            limits::out_of_memory_is_reported,
            limits::the_least_and_the_most_of_each_limit_make_a_sandbox_that_works,
        }
    };
    (usable: $kind:expr) => {
        $crate::conformance! { tests: $kind;
            usability::a_shell_finds_a_usual_machine,
            usability::job_control_and_substitution_work_in_a_shell,
            usability::devices_are_there_and_temporary_files_work,
            usability::python_works,
            usability::python_has_certificates_and_environments,
            usability::node_works_where_it_is_installed,
            usability::git_works,
            usability::perl_works,
            usability::ordinary_programs_are_unaffected,
        }
    };
    (tests: $kind:expr; $($room:ident::$name:ident,)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                $crate::support::conformance::$room::$name(&$kind).await;
            }
        )*
    };
    // Those that start the test's program again for themselves.
    (named_tests: $kind:expr; $($room:ident::$name:ident,)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                $crate::support::conformance::$room::$name(&$kind, stringify!($name)).await;
            }
        )*
    };
}
