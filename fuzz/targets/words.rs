//! The words that callers, command lines and files give: tokens, challenges, hosts, origins, networks. Nothing panics,
//! and what is taken says the same when it is written out and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use podlink::{
    guest::{HostName, Network, Origin},
    token::{Challenge, Proof, Token},
};

fuzz_target!(|data: &[u8]| {
    if let Ok(token) = Token::parse(data) {
        let text = token.expose();
        assert!(Token::parse(text.as_bytes()).is_ok_and(|again| again == token));
        assert!(!format!("{token:?}").contains(text.as_str()), "no token in a Debug text");
    }
    if let Some(challenge) = Challenge::parse(data) {
        assert!(data.eq_ignore_ascii_case(challenge.to_hex().as_bytes()));
    }
    if let Some(proof) = Proof::parse(data) {
        assert!(data.eq_ignore_ascii_case(proof.to_hex().as_bytes()));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = text.parse::<HostName>();
    if let Ok(origin) = text.parse::<Origin>() {
        assert_eq!(text.parse::<Origin>(), Ok(origin));
    }
    if let Ok(network) = text.parse::<Network>() {
        assert_eq!(network.to_string().parse::<Network>(), Ok(network), "{text}");
    }
});
