//! Random bits, for ids that can be neither guessed nor chosen.

use std::io;

/// 128 bits of the machine's entropy.
///
/// # Errors
/// When the machine gives no entropy.
pub fn random_bits() -> io::Result<u128> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::from)?;
    Ok(u128::from_le_bytes(bytes))
}
