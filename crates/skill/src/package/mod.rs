//! `.skill` packages: a skill as one ZIP file.
//!
//! A package comes from an untrusted source, so our reader is stricter than a general ZIP library. Such a library
//! hides local headers, keeps the last of two entries with one name, and skips bytes between entries. There, two
//! readers can see two different archives. Our reader refuses a package unless every byte before the end record
//! has a meaning. The comment after it may contain anything except another end signature. Only the compression
//! uses another crate.

mod archive;
mod byte_reader;
mod entry_path;
mod extract;
mod inflate;
mod layout;
mod limits;
mod origin;
mod pack;
mod problem;
mod reader;
mod writer;

pub(crate) use extract::load_package_within;
pub use extract::{UnpackedPackage, extract_skill_file, load_skill_file};
pub(crate) use limits::DiskBudget;
pub use limits::PackageLimits;
pub(crate) use origin::PackageOrigin;
pub use pack::{PackReport, pack, pack_file};
pub(crate) use problem::display_name;
pub use problem::{PackageProblem, PackageProblemKind};
pub(crate) use reader::is_package_name;
pub use reader::{Package, PackageFile};

#[cfg(test)]
mod tests;
