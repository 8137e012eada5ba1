//! The kinds of sandboxes that a benchmark compares.

use conjure_sandbox::{Connector, Jail, Local};

use crate::containers::Containers;

/// A kind of sandbox: the prefix of its cases, and its connector.
pub(crate) type Kind = (&'static str, Box<dyn Connector>);

/// Local processes, jails, and containers if there are some.
pub(crate) fn kinds(containers: Option<&Containers>) -> Vec<Kind> {
    let mut kinds: Vec<Kind> =
        vec![("local-", Box::new(Local::without_isolation([]))), ("", Box::new(Jail::new([])))];
    if let Some(containers) = containers {
        kinds.push(("docker-", Box::new(containers.connector())));
    }
    kinds
}
