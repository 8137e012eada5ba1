//! A sandbox without isolation: the guest as a plain child process of the host, for trusted use.

mod connector;

pub use connector::Local;

#[cfg(test)]
mod tests;
