//! `conjure serve`.

mod command;
mod reload;
mod systemd;

pub(crate) use command::serve;
