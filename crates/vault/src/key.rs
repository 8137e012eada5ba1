//! [`VaultKey`]: the key that seals the secrets of credentials.

use std::fmt;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conjure_base::random_bits;
use conjure_fs::{Links, OpenError, RegularFile, StagedFile};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustix::fs::{Mode, OFlags};

use crate::error::VaultError;

const KEY_BYTES: usize = 32;

/// The largest key file that is read, in bytes.
const MAX_KEY_FILE: u64 = 1_024;

/// The key of an installation. What it has sealed can only be read or changed with it.
pub struct VaultKey(LessSafeKey);

impl VaultKey {
    /// Parses a key of 64 hex digits. White space around them is ignored.
    ///
    /// # Errors
    /// If the text is not such a key.
    pub fn from_hex(text: &str) -> Result<Self, VaultError> {
        let digits = text.trim().as_bytes();
        let mut bytes = [0; KEY_BYTES];
        if digits.len() != 2 * KEY_BYTES {
            return Err(VaultError::Key);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| VaultError::Key)?;
            let is_hex = pair.bytes().all(|digit| digit.is_ascii_hexdigit());
            *byte = u8::from_str_radix(pair, 16).ok().filter(|_| is_hex).ok_or(VaultError::Key)?;
        }
        let key = UnboundKey::new(&CHACHA20_POLY1305, &bytes).map_err(|_| VaultError::Key)?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Reads the key from a file. If the file is missing, it is created with a new key, and only its owner can read it. If several
    /// processes create it at the same time, one of them wins and all use its key. Blocks.
    ///
    /// # Errors
    /// If the file cannot be read or created, or does not contain a key.
    pub fn from_file(path: &Path) -> Result<Self, VaultError> {
        let failed = |reason: String| VaultError::KeyFile { path: path.to_owned(), reason };
        loop {
            match RegularFile::open(path, Links::Followed) {
                Ok(mut file) => {
                    let bytes = file.read_all(MAX_KEY_FILE).map_err(|error| failed(error.to_string()))?;
                    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
                    let key = text.and_then(|text| Self::from_hex(&text).ok());
                    return key.ok_or_else(|| failed(VaultError::Key.to_string()));
                }
                Err(OpenError::NotFound(_)) => {}
                Err(error) => return Err(failed(error.to_string())),
            }
            match create_key_file(path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(failed(error.to_string()));
                }
                // This process or another one has created the file, so the loop reads it.
                _ => {}
            }
        }
    }

    /// Seals `plain` and returns it as base64. It can only be opened with the same `context`.
    ///
    /// # Errors
    /// If the machine returns no random numbers.
    pub(crate) fn seal(&self, context: &str, plain: Vec<u8>) -> Result<String, VaultError> {
        let random = random_bits().map_err(VaultError::Entropy)?.to_le_bytes();
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(random.get(..NONCE_LEN).unwrap_or_default());
        let mut sealed = plain;
        let aad = Aad::from(context.as_bytes());
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed)
            .map_err(|_| VaultError::Entropy(io::Error::other("the secret is too large")))?;
        Ok(STANDARD.encode([&nonce[..], &sealed].concat()))
    }

    /// Opens a text that was sealed for this context. `None` if it was sealed with another key or for another context, or was changed.
    pub(crate) fn open(&self, context: &str, sealed: &str) -> Option<Vec<u8>> {
        let bytes = STANDARD.decode(sealed).ok()?;
        let (nonce, rest) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut rest = rest.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = self.0.open_in_place(nonce, Aad::from(context.as_bytes()), &mut rest).ok()?;
        Some(plain.to_vec())
    }
}

/// Creates the file with a new key. No other process ever sees it incomplete.
fn create_key_file(path: &Path) -> io::Result<()> {
    use std::io::Write as _;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let dir = rustix::fs::open(parent, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut file = StagedFile::create(dir, Mode::RUSR | Mode::WUSR)?;
    let (one, other) = (random_bits()?, random_bits()?);
    writeln!(file, "{one:032x}{other:032x}")?;
    file.sync()?;
    file.rename_new(name)
}

impl fmt::Debug for VaultKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VaultKey")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_file_is_created_once_with_owner_only_permissions() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vault.key");
        let sealed = VaultKey::from_file(&path).unwrap().seal("a", b"secret".to_vec()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(VaultKey::from_file(&path).unwrap().open("a", &sealed).unwrap(), b"secret");
        let keys: Vec<String> = std::thread::scope(|scope| {
            let path = directory.path().join("other.key");
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    let path = path.clone();
                    scope.spawn(move || {
                        VaultKey::from_file(&path).unwrap();
                        std::fs::read_to_string(path).unwrap()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0]), "all have one key");
        std::fs::write(&path, "short").unwrap();
        let error = VaultKey::from_file(&path).unwrap_err().to_string();
        assert!(error.contains("64 hex digits") && !error.contains("short"), "{error}");
        assert!(VaultKey::from_file(&directory.path().join("none/vault.key")).is_err());
    }

    #[test]
    fn a_key_is_64_hex_digits() {
        assert!(VaultKey::from_hex(&format!(" {}\n", "0aF".repeat(21) + "0")).is_ok());
        for text in ["", "00", &"0".repeat(63), &"0".repeat(65), &"+1".repeat(32), &"é".repeat(32)] {
            assert!(VaultKey::from_hex(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn only_the_same_key_opens_for_the_same_context(plain: Vec<u8>, byte: prop::sample::Index, bit in 0..8u8) {
            let key = VaultKey::from_hex(&"1".repeat(64)).unwrap();
            let sealed = key.seal("t/1", plain.clone()).unwrap();
            prop_assert_eq!(key.open("t/1", &sealed), Some(plain));
            prop_assert_eq!(key.open("t/2", &sealed), None);
            prop_assert_eq!(VaultKey::from_hex(&"2".repeat(64)).unwrap().open("t/1", &sealed), None);
            let mut bytes = STANDARD.decode(&sealed).unwrap();
            let at = byte.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(key.open("t/1", &STANDARD.encode(bytes)), None);
        }

        #[test]
        fn texts_that_were_never_sealed_are_refused(text: String) {
            prop_assert_eq!(VaultKey::from_hex(&"1".repeat(64)).unwrap().open("", &text), None);
        }
    }
}
