//! The store through its public API: contents, trees, hostile files.

#[cfg(test)]
mod contents;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod support;
#[cfg(test)]
mod trees;
