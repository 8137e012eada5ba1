//! What is told of a tree's life: one `tracing` event for each transition, with tenant, session and incarnation.

use std::fmt::Display;

use super::exit::Exit;
use super::life::Life;
use super::machine::Why;
use super::node::Node;
use super::tree::Status;

/// Emits one event about a node. `tracing` takes the level only as a literal.
macro_rules! tell {
    ($level:ident, $node:expr, $incarnation:expr, $what:literal $(, $($fields:tt)+)?) => {{
        let node: &Node = $node;
        tracing::$level!(
            actor = %node.path,
            tenant = node.labels.tenant.as_ref().map(tracing::field::display),
            session = node.labels.session.map(tracing::field::display),
            incarnation = $incarnation,
            $($($fields)+,)?
            $what
        );
    }};
}

/// A child has another status.
pub(crate) fn became(node: &Node, status: Status, last_exit: Option<&Exit>) {
    let incarnation = node.state().incarnation;
    let exit = last_exit.map(|exit| tracing::field::display(exit as &dyn Display));
    match status {
        Status::Restarting { .. } => {
            tell!(warn, node, incarnation, "an actor will be started again", status = %status, exit = exit);
        }
        Status::Quarantined => tell!(error, node, incarnation, "an actor is quarantined", exit = exit),
        Status::Waiting | Status::Starting | Status::Running | Status::Stopping | Status::Finished => {
            tell!(debug, node, incarnation, "an actor has another status", status = %status);
        }
    }
}

/// Nothing of an incarnation is left.
pub(crate) fn gone(node: &Node, exit: &Exit) {
    let incarnation = node.state().incarnation;
    if exit.class().is_abnormal() {
        tell!(warn, node, incarnation, "an actor ended abnormally", exit = %exit);
    } else {
        tell!(debug, node, incarnation, "an actor ended", exit = %exit);
    }
}

/// A child did not stop in time, or is stopped by killing.
pub(crate) fn killed(life: &Life) {
    tell!(debug, &life.node, life.incarnation, "an actor is killed");
}

/// A child failed too often, and is not started again.
pub(crate) fn given_up(node: &Node, last_exit: Option<&Exit>) {
    let incarnation = node.state().incarnation;
    let exit = last_exit.map(|exit| tracing::field::display(exit as &dyn Display));
    tell!(error, node, incarnation, "an actor is given up: too many restarts", exit = exit);
}

/// A child is no child any more.
pub(crate) fn forgotten(node: &Node) {
    let incarnation = node.state().incarnation;
    tell!(debug, node, incarnation, "an actor is forgotten");
}

/// A supervisor begins to stop.
pub(crate) fn closing(life: &Life, why: Why) {
    match why {
        Why::Asked => tell!(debug, &life.node, life.incarnation, "a supervisor stops"),
        Why::Significant => {
            tell!(info, &life.node, life.incarnation, "a supervisor stops, as a significant child is done");
        }
        Why::Meltdown => {
            tell!(error, &life.node, life.incarnation, "a supervisor gives up: too many restarts")
        }
        Why::StartFailed(_) => {
            tell!(warn, &life.node, life.incarnation, "a supervisor gives up: a child did not start");
        }
    }
}
