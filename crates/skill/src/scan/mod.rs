//! Walking the directories that hold skills.

pub(crate) mod dir_handle;
pub(crate) mod scope_scan;
#[cfg(test)]
pub(crate) mod test_as_nobody;
