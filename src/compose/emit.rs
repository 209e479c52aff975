//! What the forms beside `compose.yaml` share: the errors, and what no text may hold.

use thiserror::Error;

use super::model::{ComposePod, guest_port};

/// Why a pod does not go into another form.
#[derive(Debug, Error)]
pub enum EmitError {
    /// A text holds a character that some reader of the form refuses.
    #[error("the {field} holds a character that {form} cannot carry (U+{code:04X})")]
    Unprintable {
        /// Which text.
        field: &'static str,
        /// The form.
        form: &'static str,
        /// The character.
        code: u32,
    },
    /// A folder's path holds a colon, which separates the parts of a volume.
    #[error("the path {path} holds a colon, which would end it early in a volume")]
    Colon {
        /// The path.
        path: String,
    },
    /// A size is none.
    #[error("the {field} is {text:?}, which is no size such as 4G")]
    Size {
        /// Which.
        field: &'static str,
        /// What stands there.
        text: String,
    },
    /// A leg of the way to the agent is missing in what was made.
    #[error("{form} lacks {what}: the agent would not be reached")]
    Leg {
        /// The form.
        form: &'static str,
        /// What is missing.
        what: &'static str,
    },
    /// The text could not be made or read back.
    #[error("{form} could not be made: {reason}")]
    Unmade {
        /// The form.
        form: &'static str,
        /// Why, without any of the content.
        reason: String,
    },
    /// What is read back is not what was meant.
    #[error("{form} does not read back as it was meant")]
    ReadsBackDifferently {
        /// The form.
        form: &'static str,
    },
}

/// Refuses what some reader on the way to the container would drop or change: control characters other than tab and
/// line end, and what Unicode says is no character.
pub(super) fn check_texts(pod: &ComposePod, form: &'static str) -> Result<(), EmitError> {
    for (field, text) in pod.texts() {
        let is_path = field.ends_with("path");
        let bad = |c: &char| {
            let (is_layout, code) = (matches!(c, '\t' | '\n'), *c as u32);
            // systemd takes none of either; the last two of each plane are no characters
            (c.is_control() && (is_path || !is_layout)) || (0xfdd0..=0xfdef).contains(&code) || code & 0xfffe == 0xfffe
        };
        if let Some(bad) = text.chars().find(bad) {
            return Err(EmitError::Unprintable { field, form, code: bad.into() });
        }
    }
    Ok(())
}

/// Whether a `USER_PORTS` forwards the agent's port into the guest.
pub(super) fn forwards_agent(user_ports: &str) -> bool {
    let agent = guest_port::AGENT.to_string();
    user_ports.split(',').any(|port| port.strip_suffix("/tcp").unwrap_or(port) == agent)
}
