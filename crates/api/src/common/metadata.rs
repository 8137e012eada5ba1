//! Metadata: key-value pairs of text that a client stores with its objects.

use std::collections::BTreeMap;

use crate::RequestError;
use crate::common::input::{Input, ObjectInput};

/// Key-value pairs of text that a client stores with an object.
pub type Metadata = BTreeMap<String, String>;

/// A change of metadata. A key with a text is set, a key without a text is removed.
pub type MetadataPatch = BTreeMap<String, Option<String>>;

const MAX_PAIRS: usize = 16;
const MAX_KEY: usize = 64;
const MAX_VALUE: usize = 512;

/// The API's error code for invalid metadata.
const CODE: &str = "invalid_metadata";

/// Reads the field `metadata` of a new object. Absent and null mean empty.
pub(crate) fn read(object: &mut ObjectInput<'_>) -> Result<Metadata, RequestError> {
    let Some(input) = object.optional("metadata") else { return Ok(Metadata::new()) };
    let path = input.path().to_owned();
    let mut metadata = Metadata::new();
    for (key, value) in input.object()?.entries() {
        check_key(&path, &key)?;
        metadata.insert(key, read_value(&value)?);
    }
    check_pairs(&path, metadata.len())?;
    Ok(metadata)
}

/// Reads the field `metadata` of an update. Absent and null change nothing.
pub(crate) fn read_patch(object: &mut ObjectInput<'_>) -> Result<MetadataPatch, RequestError> {
    let Some(input) = object.optional("metadata") else { return Ok(MetadataPatch::new()) };
    let path = input.path().to_owned();
    let mut patch = MetadataPatch::new();
    for (key, value) in input.object()?.entries() {
        check_key(&path, &key)?;
        let value = if value.is_null() { None } else { Some(read_value(&value)?) };
        patch.insert(key, value);
    }
    Ok(patch)
}

/// Applies a patch.
///
/// # Errors
/// If the result would have more pairs than an object may have.
pub fn patch_metadata(metadata: &mut Metadata, patch: MetadataPatch) -> Result<(), RequestError> {
    for (key, value) in patch {
        match value {
            Some(value) => drop(metadata.insert(key, value)),
            None => drop(metadata.remove(&key)),
        }
    }
    check_pairs("metadata", metadata.len())
}

fn read_value(value: &Input<'_>) -> Result<String, RequestError> {
    value.text(0..=MAX_VALUE).map_err(|error| error.with_code(CODE))
}

fn check_key(path: &str, key: &str) -> Result<(), RequestError> {
    let length = key.chars().count();
    if (1..=MAX_KEY).contains(&length) {
        return Ok(());
    }
    let message = format!("a key has {length} characters; 1 to {MAX_KEY} are allowed");
    Err(RequestError::new(path, message).with_code(CODE))
}

fn check_pairs(path: &str, pairs: usize) -> Result<(), RequestError> {
    if pairs <= MAX_PAIRS {
        return Ok(());
    }
    let message = format!("{pairs} pairs are too many; at most {MAX_PAIRS} are allowed");
    Err(RequestError::new(path, message).with_code(CODE))
}
