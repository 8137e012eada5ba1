//! Emits one `tracing` event for each transition in the tree, with tenant, session and incarnation.

use std::fmt::Display;

use super::incarnation::Incarnation;
use super::node::{Node, Status};
use crate::supervision::machine::StopCause;
use crate::supervision::specs::exit::Exit;

/// Emits an event about a node. This is a macro because `tracing` takes the level only as a literal.
macro_rules! lifecycle_event {
    ($level:ident, $node:expr, $incarnation:expr, $message:literal $(, $($fields:tt)+)?) => {{
        let node: &Node = $node;
        tracing::$level!(
            actor = %node.path,
            tenant = node.labels.tenant.as_ref().map(tracing::field::display),
            session = node.labels.session.map(tracing::field::display),
            incarnation = $incarnation,
            $($($fields)+,)?
            $message
        );
    }};
}

/// The status of a child changed.
pub(crate) fn status_changed(node: &Node, status: Status, last_exit: Option<&Exit>) {
    let incarnation = node.state().incarnation;
    let exit = last_exit.map(|exit| tracing::field::display(exit as &dyn Display));
    match status {
        Status::Restarting { .. } => {
            lifecycle_event!(warn, node, incarnation, "an actor will be started again", status = %status, exit = exit);
        }
        Status::Quarantined => {
            lifecycle_event!(error, node, incarnation, "an actor is quarantined", exit = exit)
        }
        Status::Waiting | Status::Starting | Status::Running | Status::Stopping | Status::Finished => {
            lifecycle_event!(debug, node, incarnation, "actor status changed", status = %status);
        }
    }
}

/// Nothing of an incarnation is left.
pub(crate) fn child_exited(node: &Node, exit: &Exit) {
    let incarnation = node.state().incarnation;
    if exit.class().is_abnormal() {
        lifecycle_event!(warn, node, incarnation, "an actor ended abnormally", exit = %exit);
    } else {
        lifecycle_event!(debug, node, incarnation, "an actor ended", exit = %exit);
    }
}

/// A child did not stop in time, or is configured to be killed.
pub(crate) fn child_killed(incarnation: &Incarnation) {
    lifecycle_event!(debug, &incarnation.node, incarnation.number, "an actor is killed");
}

/// A child failed too often and is not restarted.
pub(crate) fn child_given_up(node: &Node, last_exit: Option<&Exit>) {
    let incarnation = node.state().incarnation;
    let exit = last_exit.map(|exit| tracing::field::display(exit as &dyn Display));
    lifecycle_event!(error, node, incarnation, "an actor is given up: too many restarts", exit = exit);
}

/// A child was removed.
pub(crate) fn child_removed(node: &Node) {
    let incarnation = node.state().incarnation;
    lifecycle_event!(debug, node, incarnation, "a child was removed");
}

/// A supervisor starts to stop.
pub(crate) fn supervisor_stopping(incarnation: &Incarnation, cause: StopCause) {
    match cause {
        StopCause::Requested => {
            lifecycle_event!(debug, &incarnation.node, incarnation.number, "a supervisor stops")
        }
        StopCause::Significant => {
            lifecycle_event!(
                info,
                &incarnation.node,
                incarnation.number,
                "a supervisor stops, as a significant child is done"
            );
        }
        StopCause::Meltdown => {
            lifecycle_event!(
                error,
                &incarnation.node,
                incarnation.number,
                "a supervisor gives up: too many restarts"
            )
        }
        StopCause::StartFailed(_) => {
            lifecycle_event!(
                warn,
                &incarnation.node,
                incarnation.number,
                "a supervisor gives up: a child did not start"
            );
        }
    }
}
