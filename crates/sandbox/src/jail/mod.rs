//! The jail: the guest in namespaces of its own, made by the library itself, without a daemon and without root.

mod connector;
mod environment;
mod etc;
mod folders;
mod guard;
mod hand_back;
mod identity;
mod interpreters;
mod lent;
mod remedy;
mod root;

pub use connector::Jail;

// What is given to sandboxes that were made for nobody yet.
pub(crate) use folders::{Belongings, has_shelves_only};

// What containers have in common with jails: where things lie, whose they are, what commands see.
#[cfg(feature = "docker")]
pub(crate) use environment::usual as usual_variables;
#[cfg(feature = "docker")]
pub(crate) use folders::{
    CLOSED, Folders, Kept, RESERVED, Shelves as FromShelves, inner, layout as jail_layout, refused,
};
#[cfg(feature = "docker")]
pub(crate) use hand_back::{HandedOver, take_back};
#[cfg(feature = "docker")]
pub(crate) use identity::{HOME, NAME, Runner, stranger};
#[cfg(feature = "docker")]
pub(crate) use lent::Lent;
#[cfg(feature = "docker")]
pub(crate) use root::{DEVICES, HOSTNAME, OUTPUT, WORKSPACE, WRITABLE};
