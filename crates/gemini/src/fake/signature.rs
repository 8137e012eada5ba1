//! The signatures of the fake. A signature is a digest of its part, so it is only valid in that part.

use conjure_base::Digest;
use serde_json::Value;

use crate::contents::NO_SIGNATURE;

/// The member of a part that holds its signature.
pub(super) const MEMBER: &str = "thoughtSignature";

/// The signature of a part. It is also valid base64 of whole bytes.
pub(super) fn signature(part: &Value) -> String {
    let mut part = part.clone();
    if let Some(members) = part.as_object_mut() {
        members.remove(MEMBER);
    }
    // Another client may write the members in another order.
    part.sort_all_objects();
    Digest::of_bytes(format!("fake signature\0{part}").as_bytes()).to_hex()
}

/// Whether the signature of this part is valid: its own, or the one that skips the check. A part without a signature is valid.
pub(super) fn is_valid(part: &Value) -> bool {
    match part.get(MEMBER) {
        None => true,
        Some(Value::String(text)) => text == NO_SIGNATURE || *text == signature(part),
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_signature_is_valid_in_its_own_part_only() {
        let call = |args: Value, sign: Value| json!({"functionCall": {"name": "a", "args": args}, "thoughtSignature": sign});
        let signed = Value::from(signature(&call(json!({"n": 1.50}), Value::Null)));
        assert!(is_valid(&call(json!({"n": 1.5}), signed.clone())));
        assert!(!is_valid(&call(json!({"n": 2}), signed.clone())));
        assert!(!is_valid(&json!({"text": "", "thoughtSignature": signed})));
        assert!(is_valid(&call(json!({}), NO_SIGNATURE.into())));
        assert!(is_valid(&json!({"text": ""})));
        assert!(!is_valid(&call(json!({}), 3.into())));
        assert_eq!(signed.as_str().unwrap().len() % 4, 0);
    }
}
