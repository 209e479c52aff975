//! The form of `compose.yaml`, written and read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_yaml::DoubleQuoted;
use thiserror::Error;

pub(super) type Text = DoubleQuoted<String>;

/// `compose.yaml`, both ways.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) services: BTreeMap<String, Service>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Service {
    pub(super) image: Text,
    pub(super) labels: BTreeMap<String, Text>,
    pub(super) environment: BTreeMap<String, Text>,
    pub(super) cap_add: Vec<Text>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) devices: Vec<Text>,
    pub(super) ports: Vec<Text>,
    pub(super) volumes: Vec<Text>,
    pub(super) restart: Text,
    pub(super) stop_grace_period: Text,
}

/// The text is not a file of this form.
#[derive(Debug, Error)]
#[error("it is not YAML of the form that setup writes")]
pub(super) struct Unreadable;

/// Reads a file of this form.
pub(super) fn parse(text: &str) -> Result<File, Unreadable> {
    // the cause's own text may quote the file, and the file holds the password
    serde_yaml::from_str(text).map_err(|_| Unreadable)
}
