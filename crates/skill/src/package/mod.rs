//! `.skill` packages: a skill as one ZIP file, read and written.
//!
//! A package comes from a stranger, so its container is read by a reader of our own that is stricter than a general
//! ZIP library can be: such a library hides the local headers, keeps the last of two entries with one name and skips
//! what lies between entries, which are exactly the places where two readers can be made to see two archives. Here
//! every byte before the end record must be accounted for, or the package is refused. What follows it is its comment, which
//! may hold anything but the signature of another end record. Only the compression is another crate's.

mod archive;
mod budget;
mod bytes;
mod entry_path;
mod extract;
mod inflate;
mod layout;
mod limits;
mod output;
mod pack;
mod problem;
mod reader;
mod writer;

pub(crate) use budget::Budget;
pub use extract::{Extracted, extract_skill_file, load_skill_file};
pub(crate) use extract::{Origin, load_package_within};
pub use limits::PackageLimits;
pub use pack::{Packed, pack, pack_file};
pub(crate) use problem::shown;
pub use problem::{PackageProblem, PackageProblemKind};
pub use reader::{Package, PackageFile};

/// The ending of a package's file name.
pub(crate) const EXTENSION: &str = "skill";

/// Whether a file of this name is taken for a package.
pub(crate) fn is_package_name(name: &std::ffi::OsStr) -> bool {
    std::path::Path::new(name).extension().is_some_and(|extension| extension == EXTENSION)
}

#[cfg(test)]
mod tests;
