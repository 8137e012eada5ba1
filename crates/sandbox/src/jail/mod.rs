//! The jail: the guest in namespaces of its own, made by the library itself, without a daemon and without root.

mod connector;
mod environment;
mod etc;
mod folders;
mod guard;
mod hand_back;
mod identity;
mod interpreters;
mod remedy;
mod root;

pub use connector::Jail;
