//! Names that nobody can guess.

use anyhow::Context as _;

/// `N` random bytes in hex.
///
/// # Errors
/// When the system has no randomness to give.
pub(super) fn random_hex<const N: usize>() -> anyhow::Result<String> {
    use rand::TryRng as _;
    let mut bytes = [0; N];
    rand::rngs::SysRng.try_fill_bytes(&mut bytes).context("the operating system gave no random bytes")?;
    Ok(hex::encode(bytes))
}
