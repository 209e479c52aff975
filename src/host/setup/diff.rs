//! The difference that `--dry-run` shows, without secrets.

use std::path::Path;

use similar::TextDiff;

use zeroize::Zeroizing;

const HIDDEN: &str = "<hidden>";
const HIDDEN_CHANGED: &str = "<hidden, changed>";

/// What no text that is shown may hold.
pub(super) struct Secrets(pub(super) Vec<Zeroizing<String>>);

/// The difference in unified form.
pub(super) fn unified(path: &Path, old: Option<&str>, new: &str, secrets: &Secrets) -> String {
    let shown_old = old.map(|old| masked(old, HIDDEN, secrets));
    let changed = old.is_some_and(|old| secret_lines(old).ne(secret_lines(new)));
    let shown_new = masked(new, if changed { HIDDEN_CHANGED } else { HIDDEN }, secrets);
    let from = if old.is_some() { path.display().to_string() } else { "/dev/null".to_owned() };
    TextDiff::from_lines(shown_old.as_deref().unwrap_or_default(), &shown_new)
        .unified_diff()
        .header(&from, &path.display().to_string())
        .to_string()
}

/// The text with what is secret replaced. A password that stands there otherwise than setup writes it, over several
/// lines for instance, hides the whole text.
fn masked(text: &str, mask: &str, secrets: &Secrets) -> String {
    let mut shown = String::with_capacity(text.len());
    for line in text.lines() {
        let line = match secret_value(line) {
            Some((before, value)) if is_one_quoted(value) => format!("{before} \"{mask}\""),
            Some(_) => return format!("{mask}\n"),
            None if is_token(line) => mask.to_owned(),
            None => line.to_owned(),
        };
        shown.push_str(&line);
        shown.push('\n');
    }
    // whatever else may hold one
    for secret in secrets.0.iter().filter(|secret| secret.len() >= 4) {
        if shown.contains(secret.as_str()) {
            shown = shown.replace(secret.as_str(), mask);
        }
    }
    shown
}

fn secret_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| secret_value(line).map(|(_, value)| value).or(is_token(line).then_some(line.trim())))
}

/// The key of a line that holds a password, and what follows it.
fn secret_value(line: &str) -> Option<(&str, &str)> {
    let at = line.find(':')?;
    let (before, value) = line.split_at(at + 1);
    let key = before.trim().trim_end_matches(':').trim_matches(['"', '\'']);
    key.eq_ignore_ascii_case("password").then(|| (before, value.trim()))
}

fn is_one_quoted(value: &str) -> bool {
    value.len() >= 2 && ['"', '\''].iter().any(|quote| value.starts_with(*quote) && value.ends_with(*quote))
}

fn is_token(line: &str) -> bool {
    let line = line.trim().trim_start_matches('\u{feff}');
    line.len() == 64 && line.bytes().all(|c| c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use zeroize::Zeroizing;

    use super::*;

    fn diff(old: &str, new: &str) -> String {
        unified(Path::new("/x"), Some(old), new, &Secrets(vec![Zeroizing::new("elsewhere".into())]))
    }

    #[test]
    fn passwords_and_tokens_are_hidden_and_a_change_is_said() {
        let text = diff("a: 1\nPASSWORD: \"old\"\n", "a: 2\nPASSWORD: \"new\"\n");
        assert!(text.contains("+a: 2") && text.contains("<hidden, changed>"), "{text}");
        assert!(!text.contains("old") && !text.contains("new"), "{text}");

        let same = diff("a: 1\npassword: \"keep\"\n", "a: 2\npassword: \"keep\"\n");
        assert!(same.contains("<hidden>") && !same.contains("changed") && !same.contains("keep"), "{same}");

        let token = diff(&format!("{}\n", "a1".repeat(32)), &format!("{}\n", "b2".repeat(32)));
        assert!(!token.contains("a1a1") && !token.contains("b2b2") && token.contains("<hidden, changed>"), "{token}");
    }

    #[test]
    fn odd_forms_hide_all() {
        let text = diff("password: |\n  old\n  older\nb: elsewhere\n", "b: 1\n");
        assert!(!text.contains("old") && !text.contains("elsewhere"), "{text}");
        assert!(!diff("note: elsewhere\n", "b: 1\n").contains("elsewhere"));
    }
}
