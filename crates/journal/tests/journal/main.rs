//! Journals through their public API: the suite that all must pass, a model, damaged files, overload, old formats.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod database_moved;
#[cfg(test)]
mod deleting;
#[cfg(test)]
mod formats;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod model;
#[cfg(test)]
mod record_model;
#[cfg(test)]
mod shares;
#[cfg(test)]
mod support;
