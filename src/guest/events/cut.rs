//! Events of bounded size: what is too long is cut, and says by how much.

use serde_json::Value;

use crate::protocol::MAX_EVENT;

/// What is left of a text. Escaped it takes up to six times as much.
const MOST_TEXT: usize = 512;
/// What is left of a list.
const MOST_ITEMS: usize = 32;

/// The data as JSON of bounded length; where it was longer, `truncated_bytes` says by how many bytes.
pub(super) fn json_of(data: &impl serde::Serialize) -> String {
    let json = serde_json::to_string(data).unwrap_or_default();
    if json.len() <= MAX_EVENT {
        return json;
    }
    let mut value: Value = serde_json::from_str(&json).unwrap_or_default();
    cut(&mut value);
    let len = value.to_string().len();
    if let Value::Object(fields) = &mut value {
        fields.insert("truncated_bytes".to_owned(), (json.len() - len.min(json.len())).into());
    }
    value.to_string()
}

fn cut(value: &mut Value) {
    match value {
        Value::String(text) => text.truncate(text.floor_char_boundary(MOST_TEXT)),
        Value::Array(items) => {
            items.truncate(MOST_ITEMS);
            items.iter_mut().for_each(cut);
        }
        Value::Object(fields) => fields.values_mut().for_each(cut),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn nothing_is_longer_than_the_bound_and_what_is_cut_says_so(
            text in "[\0é\u{2028}a]{1,20}", times in 1..20_000_usize, items in 0..200_usize,
        ) {
            let data = json!({"ts": "now", "argv": vec![text.repeat(times / (items + 1)); items], "text": text.repeat(times)});
            let json = json_of(&data);
            prop_assert!(json.len() <= MAX_EVENT);
            let read: Value = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(&read["ts"], "now");
            prop_assert_eq!(read.get("truncated_bytes").is_none(), read == data);
        }
    }
}
