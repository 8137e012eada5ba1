//! The key of a record: its scope, its kind and its id.

use std::borrow::Cow;
use std::fmt;

use conjure_base::TenantId;

/// The longest id of a record, in bytes.
pub const MAX_RECORD_ID_BYTES: usize = 128;

/// The longest name of a kind and of an index, in bytes.
pub const MAX_RECORD_TEXT_BYTES: usize = 64;

/// The text is not a valid id, kind or index name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} is not valid: {rule}")]
pub struct RecordNameError {
    pub(super) what: &'static str,
    pub(super) rule: &'static str,
}

/// The owner of a record. The same kind and id in another scope is another record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordScope {
    /// No tenant. An example is an API key, which is looked up before its tenant is known.
    System,
    /// This tenant. Its records are deleted with it.
    Tenant(TenantId),
}

impl RecordScope {
    /// The tenant; `None` for the scope of no tenant.
    #[must_use]
    pub const fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::System => None,
            Self::Tenant(tenant) => Some(tenant),
        }
    }
}

impl From<TenantId> for RecordScope {
    fn from(tenant: TenantId) -> Self {
        Self::Tenant(tenant)
    }
}

impl From<&TenantId> for RecordScope {
    fn from(tenant: &TenantId) -> Self {
        Self::Tenant(tenant.clone())
    }
}

impl fmt::Display for RecordScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A tenant's id is never empty, and has no such character.
        f.write_str(self.tenant().map_or("(system)", TenantId::as_str))
    }
}

macro_rules! short_name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Cow<'static, str>);

        impl $name {
            /// Checks the name.
            ///
            /// # Errors
            /// When it is empty, longer than 64 bytes, or has a character other than `a-z`, `0-9`, `-`, `_` and `.`.
            pub fn new(text: impl Into<Cow<'static, str>>) -> Result<Self, RecordNameError> {
                let text = text.into();
                if is_short_name(&text) {
                    Ok(Self(text))
                } else {
                    Err(RecordNameError { what: $what, rule: "it must be 1 to 64 of a-z, 0-9, `-`, `_` and `.`" })
                }
            }

            /// Creates a name from a static text. In a constant, an invalid name does not compile.
            ///
            /// # Panics
            /// When the name is not valid.
            #[must_use]
            pub const fn from_static(text: &'static str) -> Self {
                assert!(is_short_name(text), "it must be 1 to 64 of a-z, 0-9, `-`, `_` and `.`");
                Self(Cow::Borrowed(text))
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

short_name!(
    /// The kind of a record, such as `agent`: 1 to 64 of `a-z`, `0-9`, `-`, `_` and `.`.
    RecordKind,
    "the kind of a record"
);
short_name!(
    /// The name of an index over the records of one kind: 1 to 64 of `a-z`, `0-9`, `-`, `_` and `.`.
    IndexName,
    "the name of an index"
);

const fn is_short_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !matches!(bytes[at], b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.') {
            return false;
        }
        at += 1;
    }
    !bytes.is_empty() && bytes.len() <= MAX_RECORD_TEXT_BYTES
}

/// The key of a record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey {
    scope: RecordScope,
    kind: RecordKind,
    id: String,
}

impl RecordKey {
    /// The key of the record with this id: 1 to [`MAX_RECORD_ID_BYTES`] bytes, no control characters.
    ///
    /// # Errors
    /// When the id is empty, too long, or has control characters.
    pub fn new(
        scope: impl Into<RecordScope>,
        kind: RecordKind,
        id: impl Into<String>,
    ) -> Result<Self, RecordNameError> {
        let id = id.into();
        if is_text(&id, MAX_RECORD_ID_BYTES) {
            Ok(Self { scope: scope.into(), kind, id })
        } else {
            let rule = "it must have 1 to 128 bytes and no control characters";
            Err(RecordNameError { what: "the id of a record", rule })
        }
    }

    /// The owner of the record.
    #[must_use]
    pub const fn scope(&self) -> &RecordScope {
        &self.scope
    }

    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> &RecordKind {
        &self.kind
    }

    /// Its id within the scope and kind.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.scope, self.kind, self.id)
    }
}

/// Whether a text has 1 to `max` bytes and no control characters.
pub(super) fn is_text(text: &str, max: usize) -> bool {
    (1..=max).contains(&text.len()) && !text.chars().any(char::is_control)
}
