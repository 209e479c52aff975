//! The account and session that the agent runs in.

use crate::guest::account::Account;

/// Looks them up.
pub(in crate::guest) fn account() -> Account {
    todo!()
}
