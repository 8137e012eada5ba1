//! The sandbox that isolates nothing: the guest as a child process of the host, for trusted use.

mod connector;
mod guard;

pub use connector::Local;

#[cfg(test)]
mod tests;
