//! Sessions through their public interface.

#[cfg(test)]
mod files;
#[cfg(test)]
mod journal;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod scenario;
#[cfg(test)]
mod support;
#[cfg(test)]
mod turns;
