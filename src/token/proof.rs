//! Proof that an agent holds the token, given before the token is sent to it.
//!
//! `Podlink-Proof` = hex(HMAC-SHA256(key = the token's 32 bytes, "podlink-health-1" || the challenge's 32 bytes)).

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use super::{Token, TokenError, random_bytes};

/// Keeps a proof for `/health` from being taken for one of anything else signed with the token.
const DOMAIN: &[u8] = b"podlink-health-1";

/// 32 random bytes that an agent is to sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge([u8; 32]);

impl Challenge {
    /// A new one.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn generate() -> Result<Self, TokenError> {
        random_bytes().map(Self)
    }

    /// Reads 64 hex digits; `None` for anything else.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// As it goes into the header.
    pub fn to_hex(&self) -> String {
        hex::encode(self.0)
    }
}

/// An agent's signature over a [`Challenge`].
#[derive(Debug, Clone)]
pub struct Proof([u8; 32]);

impl Proof {
    /// Reads 64 hex digits; `None` for anything else.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// As it goes into the header.
    pub fn to_hex(&self) -> String {
        hex::encode(self.0)
    }
}

impl PartialEq for Proof {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Token {
    /// The signature that only a holder of this token can give.
    #[expect(clippy::missing_panics_doc, reason = "it cannot: HMAC takes keys of every length")]
    pub fn prove(&self, challenge: &Challenge) -> Proof {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of every length");
        mac.update(DOMAIN);
        mac.update(&challenge.0);
        Proof(mac.finalize().into_bytes().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with Python's `hmac.new(bytes(range(32)), b"podlink-health-1" + bytes(range(32, 64)), "sha256")`.
    const EXPECTED: &str = "191134ebbd1a8732bb67b40108ee10d9b331230cd4b0b9401ae4bca0d480884f";

    #[test]
    fn agrees_with_another_implementation() {
        let token = Token::parse(hex::encode((0..32).collect::<Vec<u8>>()).as_bytes()).unwrap();
        let challenge = Challenge::parse(hex::encode((32..64).collect::<Vec<u8>>()).as_bytes()).unwrap();
        assert_eq!(token.prove(&challenge).to_hex(), EXPECTED);
    }

    #[test]
    fn another_token_or_challenge_proves_nothing() {
        let (a, b) = (Token::generate().unwrap(), Token::generate().unwrap());
        let (one, two) = (Challenge::generate().unwrap(), Challenge::generate().unwrap());
        assert!(a.prove(&one) == a.prove(&one));
        assert!(a.prove(&one) != b.prove(&one));
        assert!(a.prove(&one) != a.prove(&two));
    }
}
