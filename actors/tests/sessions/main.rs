//! Sessions through their public interface.

#[cfg(test)]
mod ledger;
#[cfg(test)]
mod support;
