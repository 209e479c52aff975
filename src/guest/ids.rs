//! Names that nobody can guess.

use crate::token::random_bytes;

/// `N` random bytes in hex.
///
/// # Errors
/// When the system has no randomness to give.
pub(super) fn random_hex<const N: usize>() -> anyhow::Result<String> {
    Ok(hex::encode(random_bytes::<N>()?))
}
