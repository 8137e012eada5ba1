//! The store through its public API: contents, trees, what hostile files do to it.

#[cfg(test)]
mod contents;
#[cfg(test)]
mod frozen;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod support;
#[cfg(test)]
mod trees;
