//! A path as it may stand in the log, and in what is told of requests.

/// Hex digits of a token.
const TOKEN_DIGITS: usize = 64;

/// Most characters of a path that go into the log.
const MAX_LOGGED_PATH: usize = 200;

/// A path as it may stand in the log: of bounded length, and without what could be a token that was put there by mistake.
pub(super) fn loggable(path: &str) -> String {
    let mut run = 0;
    let holds_digits = path.bytes().any(|byte| {
        run = if byte.is_ascii_hexdigit() { run + 1 } else { 0 };
        run >= TOKEN_DIGITS
    });
    if holds_digits { "(as long as a token)".to_owned() } else { path.chars().take(MAX_LOGGED_PATH).collect() }
}
