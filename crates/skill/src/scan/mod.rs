//! Walking the directories that hold skills.

pub(crate) mod folder_handle;
pub(crate) mod scope_scan;
#[cfg(test)]
pub(crate) mod test_as_nobody;
